#include <nexar.h>
#include <stdio.h>

int main(void) {
  nexarComm_t comm = NULL;
  const int sent = 42;
  int received = 0;
  if (nexarCommInitAll(&comm, 1, NULL) != nexarSuccess ||
      nexarAllReduce(&sent, &received, 1, nexarInt32, nexarSum, comm, NULL) != nexarSuccess ||
      nexarCommDestroy(comm) != nexarSuccess) {
    printf("%s\n", nexarGetLastError(NULL));
    return 1;
  }
  printf("nexar %d.%d.%d, from C: %d\n", NEXAR_MAJOR, NEXAR_MINOR, NEXAR_PATCH, received);
  return received == sent ? 0 : 1;
}
