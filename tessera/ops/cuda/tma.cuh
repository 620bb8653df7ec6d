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
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(row)
      : "memory");
}

// Starts the copy of `bytes` contiguous bytes, a multiple of 16, into shared memory. They count for the current phase
// of `barrier`.
__device__ inline void load_bytes(Barrier* barrier, void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// Copies to global memory by the copy engine: `bytes` contiguous bytes, a multiple of 16. add_floats() adds them, as
// f32 elements, to those in memory. This thread's earlier writes to shared memory must be published first
// (publish_tiles()). The thread that starts a copy must wait for it.
__device__ inline void store_bytes(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
__device__ inline void add_floats(float* to, const float* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all started copies of this thread have read shared memory.
__device__ inline void wait_for_reads_of_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until all started copies of this thread are complete.
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace tessera::cuda
