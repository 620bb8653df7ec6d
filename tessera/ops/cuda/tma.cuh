// Copies between global and shared memory by Hopper's copy engine (TMA), and the barriers that threads use to wait for
// these copies. PTX ISA: "mbarrier", "cp.async.bulk" and "cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include "tessera/ops/cuda/tiles.cuh"

namespace tessera::cuda {

// A barrier in shared memory. Its phases follow one another: a phase ends when all its arrivals have happened and all
// bytes announced for it have been written. wait_for() takes the parity of the phase that it waits for: 0 for the first
// phase, 1 for the second, 0 for the third, and so on. During the first phase, a wait for parity 1 returns at once.
using Barrier = uint64_t;

// `arrivals` is the number of arrivals in each phase.
__device__ inline void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Makes initialized barriers visible to the copy engine. __syncthreads() must follow before the barriers are used.
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

// Orders this thread's earlier reads of shared memory before later writes by the copy engine. A barrier alone orders
// the reads only before later writes by threads (PTX ISA: "async proxy"). A thread must therefore call finish_reads()
// before it arrives at a barrier if the copy engine overwrites the read data after this barrier.
__device__ inline void finish_reads() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts the copy of a box of an array [rows, heads, columns] into shared memory. The box begins at (row, head,
// column), and `map` gives its size (tensor_map.h). The bytes of the box count for the current phase of `barrier`.
__device__ inline void copy_box(const CUtensorMap& map, Barrier* barrier, void* to, int column, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(row)
      : "memory");
}

// Starts the copy of `bytes` contiguous bytes into shared memory. `bytes` must be a multiple of 16. The bytes count for
// the current phase of `barrier`.
__device__ inline void load_bytes(Barrier* barrier, void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// store_bytes() and add_floats() start the copy of `bytes` contiguous bytes from shared to global memory by the copy
// engine. `bytes` must be a multiple of 16. store_bytes() overwrites the bytes at `to`. add_floats() adds the f32
// elements at `from` to the elements at `to`. The threads that wrote the data to shared memory must first publish their
// writes (publish_tiles() in wgmma.cuh). The thread that starts copies must then call commit_stores() and one of the
// functions that wait.
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
// Puts this thread's copies to global memory since the previous call into one group. The functions below wait for
// groups.
__device__ inline void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all committed copies of this thread have read shared memory. Then shared memory may be overwritten.
__device__ inline void wait_for_reads_of_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until all committed copies of this thread have written global memory.
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace tessera::cuda
