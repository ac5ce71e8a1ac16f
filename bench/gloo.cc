/*
 * Measures Gloo's collectives as collectives.h describes. Gloo has no scan.
 *
 * TCP on loopback; the rendezvous is the directory GLOO_STORE. The reduce-scatter is of Gloo's
 * older interface: an object, created once for a size, that works in place.
 */
#include <csignal>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "collectives.h"

using Fold = void (*)(void *, const void *, const void *, size_t);
using ReduceScatter = gloo::ReduceScatterHalvingDoubling<float>;

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<ReduceScatter> scatterer;

template <class Options> static Options between(float *in, size_t sends, float *out, size_t gets) {
  Options options(context);
  options.setInput(in, sends);
  options.setOutput(out, gets);
  return options;
}

static void reduce_scatter(float *in, float *out, size_t count) {
  if (!scatterer) {
    std::vector<int> blocks(size, static_cast<int>(count / size));
    memcpy(out, in, count * sizeof *out);
    scatterer.reset(new ReduceScatter(context, {out}, static_cast<int>(count), blocks));
  }
  scatterer->run();
}

static void call(enum operation operation, float *in, float *out, size_t count) {
  size_t block = count / size;
  switch (operation) {
  case ALL_REDUCE: {
    auto options = between<gloo::AllreduceOptions>(in, count, out, count);
    options.setReduceFunction(static_cast<Fold>(gloo::sum<float>));
    return gloo::allreduce(options);
  }
  case REDUCE: {
    auto options = between<gloo::ReduceOptions>(in, count, out, count);
    options.setReduceFunction(static_cast<Fold>(gloo::sum<float>));
    options.setRoot(0);
    return gloo::reduce(options);
  }
  case BROADCAST: {
    gloo::BroadcastOptions options(context);
    options.setOutput(out, count);
    options.setRoot(0);
    return gloo::broadcast(options);
  }
  case ALL_GATHER: {
    auto options = between<gloo::AllgatherOptions>(in, block, out, count);
    return gloo::allgather(options);
  }
  case ALL_TO_ALL: {
    auto options = between<gloo::AlltoallOptions>(in, count, out, count);
    return gloo::alltoall(options);
  }
  case REDUCE_SCATTER: return reduce_scatter(in, out, count);
  case SCAN: return give_up("Gloo has no scan");
  default: {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }
  }
}

static double maximum(double value) {
  double most;
  gloo::AllreduceOptions options(context);
  options.setInput(&value, 1);
  options.setOutput(&most, 1);
  options.setReduceFunction(static_cast<Fold>(gloo::max<double>));
  gloo::allreduce(options);
  return most;
}

static float *allocate(size_t bytes) { return allocate_plain(bytes); }

static void release(float *buffer) {
  scatterer.reset(); /* it points into the buffers */
  free(buffer);
}

int main(int argc, char **argv) {
  std::signal(SIGPIPE, SIG_IGN);
  rank = std::atoi(std::getenv("NEXAR_RANK"));
  size = std::atoi(std::getenv("NEXAR_NRANKS"));
  try {
    context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    gloo::rendezvous::FileStore store(std::getenv("GLOO_STORE"));
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context->connectFullMesh(store, device);
    measure(argc, argv);
    /* A rank that exits early would break the calls of the others. */
    call(BARRIER, nullptr, nullptr, 0);
  } catch (const std::exception &error) {
    give_up(error.what());
  }
}
