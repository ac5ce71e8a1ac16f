#include <iostream>
#include <nexar.h>
#include <vector>

int main() {
  nexarComm_t comm = nullptr;
  const std::vector<double> sent = {1.5, 2.5};
  std::vector<double> received(sent.size());
  if (nexarCommInitAll(&comm, 1, nullptr) != nexarSuccess ||
      nexarAllReduce(sent.data(), received.data(), sent.size(), nexarFloat64, nexarSum, comm,
                     nullptr) != nexarSuccess ||
      nexarCommDestroy(comm) != nexarSuccess) {
    std::cout << nexarGetLastError(nullptr) << '\n';
    return 1;
  }
  std::cout << "nexar, from C++: " << received[0] << ' ' << received[1] << '\n';
  return received == sent ? 0 : 1;
}
