// SPDX-License-Identifier: BSD-3-Clause
// The stand-in for NCCL. An operation is a set of MPI messages. The messages are posted when the
// operation's stream reaches the operation. It is complete when all messages have arrived.
#include "nccl.h"

#include "cuda_on_cpu.h"
#include "races.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <sched.h>
#include <vector>

using cuda_on_cpu::fail;

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int size = 0, rank = 0;
  // other threads also use this member and the next one
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::atomic<bool> aborted{false};
  bool finalised = false;
  bool has_stream = false;
  cudaStream_t stream = nullptr;
  // [size] memory that NCCL keeps for each peer, from the first message on
  std::vector<void *> rooms;
};

namespace
{
struct message {
  bool is_send;
  char *at;
  size_t bytes;
  int peer;
  // used for sums: the last message overwrites the memory at `at`, and the earlier messages are
  // added to it
  bool adds = false;
};

// A running operation. MPI transfers copies of the messages, because it may access them in any of
// its calls, and during most of them device memory is closed.
struct operation {
  std::shared_ptr<ncclComm> comm;
  std::vector<message> messages;
  std::vector<std::vector<char>> copies;
  std::vector<MPI_Request> requests;
  bool posted = false, never_ends = false;
};

struct group {
  int depth = 0;
  std::vector<std::pair<ncclComm_t, cudaStream_t>> users; // streams in the order of their first use
  std::vector<std::vector<message>> messages;
};

group &current()
{
  static thread_local group one; // as in NCCL: another thread's abort does not join this group
  return one;
}

// A communicator exists until its last operation is complete, even if it was destroyed before.
std::vector<std::shared_ptr<ncclComm>> &communicators()
{
  static std::vector<std::shared_ptr<ncclComm>> all;
  return all;
}

std::mutex &communicators_lock()
{
  static std::mutex one;
  return one;
}

std::shared_ptr<ncclComm> shared(ncclComm_t comm)
{
  const std::lock_guard<std::mutex> guard(communicators_lock());
  for (const auto &c : communicators())
    if (c.get() == comm) return c;
  fail("a call to a communicator that is not or no longer there");
}

struct fault {
  int rank = -1;
  long call = -1;
  char kind[16] = "";
};

const fault &wanted_fault()
{
  static const fault f = [] {
    fault read;
    const char *text = getenv("NCCL_ON_CPU_FAULT");
    if (text && sscanf(text, "%d,%ld,%15s", &read.rank, &read.call, read.kind) != 3)
      fail("NCCL_ON_CPU_FAULT=%s is not rank,call,kind", text);
    return read;
  }();
  return f;
}

bool is_fault_here(const char *kind)
{
  int rank;

  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return wanted_fault().rank == rank && strcmp(wanted_fault().kind, kind) == 0;
}

// From now on, calls to the communicator are errors. Operations that run keep it.
void release(const std::shared_ptr<ncclComm> &ended)
{
  const std::lock_guard<std::mutex> guard(communicators_lock());
  auto &all = communicators();

  all.erase(std::remove(all.begin(), all.end(), ended), all.end());
}

constexpr int TAG = 7;

void post(operation &o)
{
  for (const message &m : o.messages) {
    if (m.bytes > INT_MAX) fail("a message of %zu bytes is too long for the stand-in", m.bytes);
    MPI_Request request;
    o.copies.emplace_back(m.is_send ? std::vector<char>(m.at, m.at + m.bytes) : std::vector<char>(m.bytes));
    if (m.is_send)
      MPI_Isend(o.copies.back().data(), static_cast<int>(m.bytes), MPI_BYTE, m.peer, TAG, o.comm->mpi,
                &request);
    else
      MPI_Irecv(o.copies.back().data(), static_cast<int>(m.bytes), MPI_BYTE, m.peer, TAG, o.comm->mpi,
                &request);
    o.requests.push_back(request);
  }
  o.posted = true;
}

// Poll an operation once. True if it is complete.
bool drive(operation &o)
{
  std::vector<MPI_Status> status(o.messages.size());
  int done = 0;

  if (o.comm->aborted) {
    for (MPI_Request &request : o.requests)
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request), MPI_Request_free(&request);
    return true;
  }
  if (o.never_ends) return false;
  if (!o.posted) cuda_on_cpu::with_memory([&] { post(o); });
  MPI_Testall(static_cast<int>(o.requests.size()), o.requests.data(), &done, status.data());
  if (!done) return false;
  for (size_t i = 0; i < o.messages.size(); i++) {
    int bytes;
    if (o.messages[i].is_send) continue;
    MPI_Get_count(&status[i], MPI_BYTE, &bytes);
    if (static_cast<size_t>(bytes) != o.messages[i].bytes)
      fail("rank %d waits for %zu bytes from rank %d, which sent %d", o.comm->rank, o.messages[i].bytes,
           o.messages[i].peer, bytes);
  }
  cuda_on_cpu::with_memory([&] {
    bool first = true;

    for (size_t i = o.messages.size(); i-- > 0;) {
      const message &m = o.messages[i];

      if (m.is_send) continue;
      if (m.adds && !first)
        for (size_t k = 0; k < m.bytes / sizeof(float); k++)
          reinterpret_cast<float *>(m.at)[k] += reinterpret_cast<const float *>(o.copies[i].data())[k];
      else
        std::copy(o.copies[i].begin(), o.copies[i].end(), m.at);
      first = false;
    }
  });
  return true;
}

void check_device_memory(const message &m)
{
  cudaPointerAttributes attributes;

  cudaPointerGetAttributes(&attributes, m.at);
  if (m.bytes > 0 && attributes.type == cudaMemoryTypeUnregistered)
    fail("%s of memory that is not the device's", m.is_send ? "ncclSend" : "ncclRecv");
}

// Allocate memory for each peer with the first message to or from it, as NCCL does.
ncclResult_t connect(ncclComm_t comm, const std::vector<message> &messages)
{
  static const size_t bytes = [] {
    const char *text = getenv("NCCL_ON_CPU_BYTES");
    return text ? strtoul(text, nullptr, 10) : 0;
  }();

  comm->rooms.resize(static_cast<size_t>(comm->size));
  for (const message &m : messages) {
    void *&room = comm->rooms[static_cast<size_t>(m.peer)];
    if (bytes > 0 && !room && cudaMalloc(&room, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

// Put those messages of a group that belong to one communicator on their stream.
ncclResult_t start(ncclComm_t comm, cudaStream_t stream, std::vector<message> messages)
{
  static long calls;
  auto o = std::make_shared<operation>();

  o->comm = shared(comm);
  if (comm->finalised || comm->aborted) fail("a call to a communicator that has been ended");
  if (comm->has_stream && comm->stream != stream) fail("a communicator used from two streams");
  comm->has_stream = true;
  comm->stream = stream;
  for (const message &m : messages) check_device_memory(m);
  if (connect(comm, messages) != ncclSuccess) return ncclUnhandledCudaError;
  o->messages = std::move(messages);
  if (calls == wanted_fault().call && is_fault_here("error")) {
    comm->error = ncclRemoteError;
    o->never_ends = true;
  }
  if (calls == wanted_fault().call && is_fault_here("hang")) o->never_ends = true;
  if (calls == wanted_fault().call && is_fault_here("stuck")) {
    while (!o->comm->aborted) sched_yield();
    return ncclSystemError;
  }
  calls++;
  cuda_on_cpu::enqueue_poll(stream, "NCCL", [o] { return drive(*o); });
  return ncclSuccess;
}

void add(ncclComm_t comm, cudaStream_t stream, std::vector<message> messages)
{
  group &g = current();
  size_t i = 0;

  while (i < g.users.size() && g.users[i].first != comm) i++;
  if (i == g.users.size()) {
    g.users.push_back({comm, stream});
    g.messages.emplace_back();
  }
  if (g.users[i].second != stream) fail("a communicator used from two streams in a group");
  g.messages[i].insert(g.messages[i].end(), messages.begin(), messages.end());
}

ncclResult_t end_group()
{
  group done = std::move(current());
  ncclResult_t result = ncclSuccess;

  current() = group();
  for (size_t i = 0; i < done.users.size() && result == ncclSuccess; i++)
    result = start(done.users[i].first, done.users[i].second, std::move(done.messages[i]));
  return result;
}

ncclResult_t operate(ncclComm_t comm, cudaStream_t stream, std::vector<message> messages)
{
  shared(comm);
  add(comm, stream, std::move(messages));
  return current().depth ? ncclSuccess : end_group();
}

message send_of(const void *from, size_t bytes, int peer)
{
  return {true, static_cast<char *>(const_cast<void *>(from)), bytes, peer, false};
}

// Contents of a communicator's id: the world rank of the process that created the id, and the
// number of ids that it has created. The communicator's members use them to find each other.
struct meeting {
  int root, number;
};
} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  static int made;
  meeting place = {0, made++};

  MPI_Comm_rank(MPI_COMM_WORLD, &place.root);
  memset(id, 0, sizeof(*id));
  memcpy(id->internal, &place, sizeof(place));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
  auto made = std::make_shared<ncclComm>();
  std::vector<int> members(static_cast<size_t>(size));
  MPI_Group world, group;
  meeting place;
  int me;

  if (config->size != sizeof(*config) || config->blocking != 1)
    fail("a communicator that does not block starts a thread for each group");
  while (is_fault_here("stuck_init")) sched_yield(); // nothing can abort what is not there yet
  memcpy(&place, id.internal, sizeof(place));
  const int tag = 1000 + place.number % 1000;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (rank == 0) {
    members[0] = me;
    for (int i = 1; i < size; i++) {
      int pair[2];
      PMPI_Recv(pair, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      members[static_cast<size_t>(pair[0])] = pair[1];
    }
    for (int i = 1; i < size; i++)
      PMPI_Send(members.data(), size, MPI_INT, members[static_cast<size_t>(i)], tag + 1000, MPI_COMM_WORLD);
  } else {
    const int pair[2] = {rank, me};
    PMPI_Send(pair, 2, MPI_INT, place.root, tag, MPI_COMM_WORLD);
    PMPI_Recv(members.data(), size, MPI_INT, place.root, tag + 1000, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, size, members.data(), &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made->mpi);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  made->size = size;
  made->rank = rank;
  const std::lock_guard<std::mutex> guard(communicators_lock());
  communicators().push_back(made);
  *comm = made.get();
  return is_fault_here("init") ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
  if (is_fault_here("finalize")) return shared(comm), ncclSystemError;
  shared(comm)->finalised = true;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  const auto kept = shared(comm);

  if (!comm->finalised) fail("ncclCommDestroy before ncclCommFinalize");
  MPI_Comm_free(&comm->mpi);
  for (void *room : comm->rooms) cudaFree(room);
  release(kept);
  return ncclSuccess;
}

// Like NCCL's, the call frees the communicator, also under a call of another thread.
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
  const auto kept = shared(comm);

  release(kept);
  kept->aborted = true; // its operations end the next time that they run
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
  *error = shared(comm)->error;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
  static const char *const names[] = {"no error",       "unhandled cuda error", "system error",
                                      "internal error", "invalid argument",     "invalid usage",
                                      "remote error",   "in progress"};
  return names[result];
}

const char *ncclGetLastError(ncclComm_t comm)
{
  if (comm) shared(comm); // NULL: the thread's last error
  return "the stand-in's fault";
}

ncclResult_t ncclGroupStart(void)
{
  current().depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
  if (current().depth == 0) fail("ncclGroupEnd without ncclGroupStart");
  return --current().depth ? ncclSuccess : end_group();
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
  (void)type;
  return operate(comm, stream, {send_of(from, count, peer)});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
  (void)type;
  return operate(comm, stream, {message{false, static_cast<char *>(to), count, peer, false}});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
  std::vector<message> messages;

  (void)type;
  for (int q = 0; q < comm->size; q++) {
    messages.push_back(send_of(from, count, q));
    messages.push_back({false, static_cast<char *>(to) + static_cast<size_t>(q) * count, count, q, false});
  }
  return operate(comm, stream, messages);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
  std::vector<message> messages;

  if (type != ncclFloat32 || op != ncclSum) fail("an all-reduce that is no sum of floats");
  for (int q = 0; q < comm->size; q++) {
    messages.push_back(send_of(from, count * sizeof(float), q));
    messages.push_back({false, static_cast<char *>(to), count * sizeof(float), q, true});
  }
  return operate(comm, stream, messages);
}

// A GPU continues while its host waits in MPI for another rank, and that rank may wait for this
// rank's GPU. So while the host waits in MPI, the stand-in's streams continue as well.

static int wait_for(MPI_Request *request, MPI_Status *status)
{
  int done = 0, error = MPI_SUCCESS;

  while (!done && error == MPI_SUCCESS) {
    error = PMPI_Test(request, &done, status);
    if (!done) {
      cuda_on_cpu::get_on();
      sched_yield();
    }
  }
  return error;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
  return wait_for(request, status);
}

/* Code that waits for other ranks' memory calls this regularly (comm/relax.c). */
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *found, MPI_Status *status)
{
  cuda_on_cpu::get_on();
  return PMPI_Iprobe(source, tag, comm, found, status);
}

int MPI_Waitall(int n, MPI_Request *requests, MPI_Status *statuses)
{
  int done = 0, error = MPI_SUCCESS;

  while (!done && error == MPI_SUCCESS) {
    error = PMPI_Testall(n, requests, &done, statuses);
    if (!done) {
      cuda_on_cpu::get_on();
      sched_yield();
    }
  }
  return error;
}

/* Messages in pinned memory are checked when they are posted. */
static void touch(const void *data, int n, MPI_Datatype type, int access)
{
  int bytes;

  MPI_Type_size(type, &bytes);
  cuda_on_cpu::races::touch(data, static_cast<size_t>(n) * static_cast<size_t>(bytes), access);
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  touch(data, n, type, cuda_on_cpu::races::READ);
  return PMPI_Isend(data, n, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
  touch(data, n, type, cuda_on_cpu::races::WRITE);
  return PMPI_Irecv(data, n, type, from, tag, comm, request);
}

int MPI_Recv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
  MPI_Request request;
  const int error = MPI_Irecv(data, n, type, from, tag, comm, &request);
  return error ? error : wait_for(&request, status);
}

int MPI_Send(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
  MPI_Request request;
  const int error = MPI_Isend(data, n, type, to, tag, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Barrier(MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Ibarrier(comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Ibcast(data, n, type, root, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Iallreduce(from, to, n, type, op, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Exscan(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Iexscan(from, to, n, type, op, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Gather(const void *from, int n_from, MPI_Datatype from_type, void *to, int n_to, MPI_Datatype to_type,
               int root, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Igather(from, n_from, from_type, to, n_to, to_type, root, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Reduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Ireduce(from, to, n, type, op, root, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Gatherv(const void *from, int n_from, MPI_Datatype from_type, void *to, const int n_to[],
                const int at[], MPI_Datatype to_type, int root, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Igatherv(from, n_from, from_type, to, n_to, at, to_type, root, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

int MPI_Allgather(const void *from, int n_from, MPI_Datatype from_type, void *to, int n_to,
                  MPI_Datatype to_type, MPI_Comm comm)
{
  MPI_Request request;
  const int error = PMPI_Iallgather(from, n_from, from_type, to, n_to, to_type, comm, &request);
  return error ? error : wait_for(&request, MPI_STATUS_IGNORE);
}

} // extern "C"
