// A stand-in for NCCL. Its collectives only call a function of the test, and return the result that the test sets.
#include <nccl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<ncclResult_t> result{ncclSuccess}, asynchronous{ncclSuccess};
std::atomic<void (*)()> on_collective{nullptr};
std::atomic<int> num_destroyed, num_aborted, num_windows, policy;

ncclResult_t collective() {
  if (auto* call = on_collective.load()) call();
  return result;
}

}  // namespace

extern "C" {

// Each collective and ncclCommInitRankConfig return `of_calls`. ncclCommGetAsyncError reports `between_calls`. Each
// collective calls `call`, unless it is nullptr. Sets the counts of destroyed and aborted communicators to 0. Memory
// from ncclMemAlloc is memory of the host.
void stub_nccl_set(ncclResult_t of_calls, ncclResult_t between_calls, void (*call)()) {
  result = of_calls;
  asynchronous = between_calls;
  on_collective = call;
  num_destroyed = num_aborted = 0;
}
int stub_nccl_num_destroyed() {
  return num_destroyed;
}
int stub_nccl_num_aborted() {
  return num_aborted;
}

int stub_nccl_num_windows() {
  return num_windows;
}
// The CTAPolicy of the last communicator.
int stub_nccl_policy() {
  return policy;
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (result == ncclSuccess) *data = std::malloc(bytes);
  return result;
}
ncclResult_t ncclMemFree(void* data) {
  std::free(data);
  return ncclSuccess;
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
ncclResult_t ncclCommWindowRegister(ncclComm_t, void* data, size_t, ncclWindow_t* window, int) {
  *window = result == ncclSuccess ? static_cast<ncclWindow_t>(data) : nullptr;
  num_windows += result == ncclSuccess;
  return result;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  --num_windows;
  return ncclSuccess;
}
#endif

ncclResult_t ncclGetVersion(int* version) {
  *version = 22803;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t* config) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  policy = config->CTAPolicy;
#else
  (void)config;
#endif
  static char the_group;
  *comm = reinterpret_cast<ncclComm_t>(&the_group);
  return result;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  ++num_aborted;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  ++num_destroyed;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = asynchronous;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclSystemError          ? "unhandled system error"
         : code == ncclUnhandledCudaError ? "unhandled cuda error"
                                          : "remote process exited";
}
const char* ncclGetLastError(ncclComm_t) {
  return result == ncclUnhandledCudaError ? "Cuda failure 2 'out of memory'" : "a cable is out";
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return collective();
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return collective();
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return collective();
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return collective();
}
}
