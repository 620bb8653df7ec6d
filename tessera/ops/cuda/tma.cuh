// Copies of tiles by Hopper's copy engine (TMA), and the barriers in shared memory that these copies complete. PTX ISA:
// "mbarrier" and "cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include "tessera/ops/cuda/tiles.cuh"

namespace tessera::cuda {

// A barrier in shared memory. A phase ends when all its arrivals have happened and all announced bytes have been
// written. Waiting threads pass the parity of the phase: 0, 1, 0, ... A wait for parity 1 before the first phase ends
// returns at once.
using Barrier = uint64_t;

__device__ inline void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Makes initialized barriers visible to the copy engine. A barrier of the block must follow.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and announces bytes that the copy engine will write in this phase.
__device__ inline void arrive_expecting(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Arrives when this thread's earlier asynchronous copies (tiles.cuh) have completed.
__device__ inline void arrive_after_copies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void wait_for(Barrier* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\nbra again;\nfinished:\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Starts the copy of a box of an array [rows, heads, columns] into shared memory. Its bytes count for the current phase
// of `barrier`.
__device__ inline void copy_box(const CUtensorMap& map, Barrier* barrier, void* to, int column, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(row)
      : "memory");
}

}  // namespace tessera::cuda
