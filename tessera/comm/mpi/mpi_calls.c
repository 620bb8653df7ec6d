#include "tessera/comm/mpi/mpi_calls.h"

#include <mpi.h>
#include <stdlib.h>

struct Batch {
  MPI_Request* requests;
  MPI_Status* states;
  int count, room;
};

static void version(char* text) {
  int length = 0;
  MPI_Get_library_version(text, &length);
}

static const char* start(int* rank, int* size) {
  int provided = 0;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) return "does not support calls from several threads (MPI_THREAD_MULTIPLE)";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  return NULL;
}

static void finish(void) {
  MPI_Finalize();
}

static void abort_all(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static void error_text(int result, char* text) {
  int length = 0;
  MPI_Error_string(result, text, &length);
}

static void* open_batch(void) {
  return calloc(1, sizeof(struct Batch));
}

// A place for one more request, or NULL if memory is exhausted.
static MPI_Request* add(struct Batch* batch) {
  if (batch->count == batch->room) {
    const int room = 2 * batch->room + 4;
    MPI_Request* const requests = realloc(batch->requests, (size_t)room * sizeof *requests);
    if (requests) batch->requests = requests;
    MPI_Status* const states = realloc(batch->states, (size_t)room * sizeof *states);
    if (states) batch->states = states;
    if (!requests || !states) return NULL;
    batch->room = room;
  }
  MPI_Request* const request = &batch->requests[batch->count++];
  *request = MPI_REQUEST_NULL;
  return request;
}

static int send_message(void* batch, const void* data, int bytes, int rank, int tag) {
  MPI_Request* const request = add(batch);
  return request ? MPI_Isend(data, bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD, request) : MPI_ERR_NO_MEM;
}

static int receive_message(void* batch, void* data, int bytes, int rank, int tag) {
  MPI_Request* const request = add(batch);
  return request ? MPI_Irecv(data, bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD, request) : MPI_ERR_NO_MEM;
}

static int test(void* opaque, int* positions, int* results) {
  struct Batch* const batch = opaque;
  int done = 0;
  const int result = MPI_Testsome(batch->count, batch->requests, &done, positions, batch->states);
  if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) {
    results[0] = result;
    return -2;
  }
  if (done == MPI_UNDEFINED) return -1;  // no request is left
  for (int i = 0; i < done; ++i) results[i] = result == MPI_ERR_IN_STATUS ? batch->states[i].MPI_ERROR : MPI_SUCCESS;
  return done;
}

static void close_batch(void* opaque) {
  struct Batch* const batch = opaque;
  for (int i = 0; i < batch->count; ++i) {
    if (batch->requests[i] == MPI_REQUEST_NULL) continue;
    // Open MPI cannot cancel sends. A peer may still receive such a message. If this rank has reused the memory of the
    // message by then, the peer gets wrong data. This does no harm, because that peer fails too.
    MPI_Cancel(&batch->requests[i]);
    MPI_Request_free(&batch->requests[i]);
  }
  free(batch->requests);
  free(batch->states);
  free(batch);
}

const struct MpiCalls tessera_mpi_calls = {
    .version = version,
    .start = start,
    .finish = finish,
    .abort = abort_all,
    .error_text = error_text,
    .open_batch = open_batch,
    .send = send_message,
    .receive = receive_message,
    .test = test,
    .close_batch = close_batch,
};
