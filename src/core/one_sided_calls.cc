// The entry points of one-sided communication: checks, groups, streams.
#include "base/datatype.h"
#include "core/capture.h"
#include "core/communicator.h"
#include "core/group.h"
#include "core/handle.h"
#include "core/one_sided.h"
#include "core/validate.h"
#include "device/device_world.h"
#include "device/host_table.h"

namespace tutti {
namespace {

constexpr int kMostFlags = NCCL_WIN_COLL_SYMMETRIC;

/// What a stream runs.
struct Enqueued {
  Communicator& communicator;
  std::vector<OneSidedCall> calls;
  size_t next = 0;  // those before are done
};

/// Nothing follows a call that failed.
void note(Enqueued& work, const Status& status) {
  if (status.isOk()) {
    ++work.next;
    return;
  }
  work.communicator.fail(status);
  work.next = work.calls.size();
}

void run(Enqueued& work) {
  while (work.next < work.calls.size())
    note(work, work.communicator.oneSided().execute(work.calls[work.next]));
}

/// The calls that can be done at once; true when these are all.
bool runAtOnce(Enqueued& work) {
  Status status;
  while (work.next < work.calls.size()) {
    if (!work.communicator.oneSided().tryExecute(work.calls[work.next], &status)) return false;
    note(work, status);
  }
  return true;
}

void runEnqueued(void* context) { run(*static_cast<Enqueued*>(context)); }
void releaseEnqueued(void* context) {
  auto* work = static_cast<Enqueued*>(context);
  TaskQueue& tasks = work->communicator.tasks();
  delete work;
  tasks.release();  // last: the communicator may go now
}

Status checkSignal(int peer, int signal, int context, unsigned flags, const Communicator& communicator) {
  TUTTI_TRY(checkPeer(peer, communicator.ranks()));
  if (signal < 0 || signal >= kSignals)
    return invalidArgument("sigIdx is {}, but signals are numbered 0..{}", signal, kSignals - 1);
  if (context != 0) return invalidArgument("ctx is {}, but there is only context 0", context);
  if (flags != 0) return invalidArgument("flags is {:#x}, but no flag is known", flags);
  return Status::ok();
}

Status submit(const CommUse& use, cudaStream_t stream, std::vector<OneSidedCall> calls) {
  TUTTI_TRY(use->error());
  return Group::ofThisThread().submitOneSided(use, stream, std::move(calls));
}

}  // namespace

Status launchOneSided(Communicator& communicator, cudaStream_t stream, std::vector<OneSidedCall> calls) {
  if (world() == World::gpus)
    return invalidUsage("ncclPutSignal, ncclSignal and ncclWaitSignal: not on GPUs yet");
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  TUTTI_ASSIGN(const uint64_t capture, captureOf(communicator, stream));
  if (capture != 0)
    return invalidUsage("one-sided calls cannot be captured: stream {} is being captured",
                        static_cast<const void*>(stream));
  communicator.tasks().retain();
  auto* work = new Enqueued{communicator, std::move(calls)};
  void* occupation = nullptr;
  if (runtime->streamTryBegin(stream, &occupation) == 0) {
    if (!runAtOnce(*work)) {
      runtime->streamHandOff(occupation, {runEnqueued, releaseEnqueued, work});
      return Status::ok();
    }
    runtime->streamEnd(occupation);
    const Status status = communicator.error();
    releaseEnqueued(work);
    return status;
  }
  const int error = runtime->streamEnqueue(stream, {runEnqueued, releaseEnqueued, work});
  if (error == 0) return Status::ok();
  releaseEnqueued(work);
  return systemError(error, "enqueue on stream {}", static_cast<const void*>(stream));
}

Status registerWindowCall(ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window, int flags) {
  if (window == nullptr) return invalidArgument("win is null");
  *window = nullptr;
  TUTTI_ASSIGN(CommUse resolved, resolveForWork(comm));
  if (buffer == nullptr || bytes == 0)
    return invalidArgument("a window needs memory, but buff is {} and size is {}", buffer, bytes);
  if (flags < 0 || flags > kMostFlags)
    return invalidArgument("winFlags is {:#x}: neither NCCL_WIN_DEFAULT nor NCCL_WIN_COLL_SYMMETRIC", flags);
  const auto use = std::make_shared<CommUse>(std::move(resolved));
  Job job;
  job.blocking = comm->blocking;
  job.order = comm;
  job.subject = use;
  job.cancel = [](const Status&) {};  // the exchange ends when the communicator fails, or at its deadline
  const bool symmetric = flags == NCCL_WIN_COLL_SYMMETRIC;
  job.run = [use, buffer, bytes, symmetric, window] {
    return (*use)->oneSided().registerWindow(buffer, bytes, symmetric, window);
  };
  return Group::ofThisThread().submitJob(std::move(job));
}

Status deregisterWindowCall(ncclComm_t comm, ncclWindow_t window) {
  TUTTI_ASSIGN(const CommUse use, resolveHandle(comm));
  if (window == nullptr) return Status::ok();
  return use->oneSided().deregisterWindow(window);
}

Result<void*> windowPointerCall(ncclComm_t comm, ncclWindow_t window) {
  TUTTI_ASSIGN(const CommUse use, resolveHandle(comm));
  TUTTI_ASSIGN(const auto found, use->oneSided().find(window));
  return found->base;
}

Status putSignalCall(const PutArguments& put, ncclComm_t comm, cudaStream_t stream) {
  TUTTI_ASSIGN(const CommUse use, resolveForWork(comm));
  TUTTI_TRY(checkSignal(put.peer, put.signal, put.context, put.flags, *use));
  TUTTI_TRY(checkType(put.type));
  TUTTI_TRY(checkSize(put.count, tutti::sizeOf(put.type), 1));
  TUTTI_TRY(checkBuffer(put.source, put.count, "localbuff"));
  OneSidedCall call;
  call.kind = OneSidedCall::Kind::put;
  call.peer = put.peer;
  call.signal = put.signal;
  call.source = put.source;
  call.bytes = put.count * tutti::sizeOf(put.type);
  call.offset = put.offset;
  TUTTI_ASSIGN(call.window, use->oneSided().find(put.window));
  TUTTI_TRY(use->oneSided().checkPut(call));
  return submit(use, stream, {std::move(call)});
}

Status signalCall(int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  TUTTI_ASSIGN(const CommUse use, resolveForWork(comm));
  TUTTI_TRY(checkSignal(peer, signal, context, flags, *use));
  OneSidedCall call;
  call.peer = peer;
  call.signal = signal;
  return submit(use, stream, {std::move(call)});
}

Status waitSignalCall(const std::vector<WaitArguments>& waits, ncclComm_t comm, cudaStream_t stream) {
  TUTTI_ASSIGN(const CommUse use, resolveForWork(comm));
  std::vector<OneSidedCall> calls;
  for (const WaitArguments& wait : waits) {
    TUTTI_TRY(checkSignal(wait.peer, wait.signal, wait.context, 0, *use));
    if (wait.count < 0) return invalidArgument("opCnt is {}, but cannot be negative", wait.count);
    OneSidedCall call;
    call.kind = OneSidedCall::Kind::wait;
    call.peer = wait.peer;
    call.signal = wait.signal;
    call.count = static_cast<uint64_t>(wait.count);
    calls.push_back(std::move(call));
  }
  if (calls.empty()) return use->error();
  return submit(use, stream, std::move(calls));
}

}  // namespace tutti
