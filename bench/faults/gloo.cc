/*
 * A rank of Gloo for faults.py, which describes the output:
 *
 *     gloo CASE COUNT leave|stay
 *
 * TCP on loopback; the rendezvous is the directory FAULTS_STORE. Nothing else is set. SIGPIPE is
 * ignored, as in Python, from which Gloo is mostly used: it would end some survivors.
 */
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

using Context = std::shared_ptr<gloo::Context>;
using Fold = void (*)(void *, const void *, const void *, size_t);

static long long now_ns() {
  auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

static void end(int code, std::string text, bool stay) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::printf("%lld %d %s\n", now_ns(), code, text.c_str());
  std::fflush(stdout);
  if (stay) std::this_thread::sleep_for(std::chrono::minutes(10));
}

/* Gloo has no types: a rank's type is its reduce function. */
static void all_reduce(const Context &context, std::vector<int> &sent, std::vector<int> &received,
                       size_t count, Fold fold) {
  gloo::AllreduceOptions options(context);
  options.setInput(sent.data(), count);
  options.setOutput(received.data(), count);
  options.setReduceFunction(fold);
  gloo::allreduce(options);
}

static int bits(int value, bool is_float) {
  float number = static_cast<float>(value);
  int same;
  std::memcpy(&same, &number, sizeof same);
  return is_float ? same : value;
}

static bool are_all(const std::vector<int> &buffer, size_t count, int expected) {
  return std::all_of(buffer.begin(), buffer.begin() + count,
                     [expected](int value) { return value == expected; });
}

static void run(const Context &context, const std::string &fault, size_t count, bool stay) {
  int rank = context->rank, size = context->size, sum = size * (size + 1) / 2;
  std::vector<int> sent(2 * count, rank + 1), received(2 * count);
  for (long turn = 0; turn == 0 || fault == "none"; turn++) {
    all_reduce(context, sent, received, count, gloo::sum<int>);
    if (!are_all(received, count, sum)) return end(-1, "wrong numbers", stay);
    if (turn == 0) {
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
      std::printf("ready %lld\n", now_ns());
      std::fflush(stdout);
    }
  }

  bool odd = rank == 1, is_float = odd && fault == "type";
  if (odd && fault == "fewer") count -= count / 10;
  if (odd && fault == "more") count += count / 10;
  int root = rank == 0 && fault == "root" ? 1 : 0;
  int expected = sum;
  std::fill(sent.begin(), sent.end(), bits(rank + 1, is_float));
  if (fault == "root") {
    expected = root + 1;
    gloo::BroadcastOptions options(context);
    if (rank == root) options.setInput(sent.data(), count);
    options.setOutput(received.data(), count);
    options.setRoot(root);
    gloo::broadcast(options);
  } else {
    Fold fold = is_float ? static_cast<Fold>(gloo::sum<float>) : static_cast<Fold>(gloo::sum<int>);
    if (odd && fault == "operator") {
      fold = gloo::max<int>;
      expected = size;
    }
    all_reduce(context, sent, received, count, fold);
  }
  bool right = are_all(received, count, bits(expected, is_float));
  end(0, right ? "right numbers" : "wrong numbers", stay);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  std::signal(SIGPIPE, SIG_IGN);
  bool stay = std::string(argv[3]) == "stay";
  auto context = std::make_shared<gloo::rendezvous::Context>(
      std::atoi(std::getenv("NEXAR_RANK")), std::atoi(std::getenv("NEXAR_NRANKS")));
  try {
    gloo::rendezvous::FileStore store(std::getenv("FAULTS_STORE"));
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context->connectFullMesh(store, device);
    run(context, argv[1], static_cast<size_t>(std::atoll(argv[2])), stay);
  } catch (const gloo::IoException &error) {
    end(1, std::string("IoException: ") + error.what(), stay);
  } catch (const std::exception &error) {
    end(2, error.what(), stay);
  }
}
