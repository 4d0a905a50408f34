#include "core/background.h"

#include <cerrno>
#include <new>
#include <system_error>
#include <thread>

namespace tutti {
namespace {

Result<std::thread> startThread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    return threadError(error.code().value(), "start a thread");
  } catch (const std::bad_alloc&) {
    return threadError(ENOMEM, "start a thread");
  }
}

}  // namespace

Status runInBackground(std::function<void()> work) {
  TUTTI_ASSIGN(std::thread thread, startThread(std::move(work)));
  thread.detach();  // everything that it uses is kept for the life of the process, or by itself
  return Status::ok();
}

Status runTogether(const std::vector<std::function<void()>>& functions,
                   const std::function<void(const Status& why)>& cancel) {
  std::vector<std::thread> threads;
  threads.reserve(functions.size());  // a thread that runs must find its place
  Status failure;
  for (size_t i = 1; i < functions.size() && failure.isOk(); ++i) {
    auto thread = startThread(functions[i]);
    if (thread.isOk()) {
      threads.push_back(std::move(thread).value());
    } else {
      failure = thread.status();
    }
  }
  if (!failure.isOk()) cancel(failure);
  functions[0]();
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace tutti
