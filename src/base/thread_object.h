// Objects that every thread has for itself, and that outlive the thread's other objects.
#pragma once

namespace tutti {

/// The calling thread's object of type T. Unlike a thread_local variable it may be used to the very end: a
/// program's static destructors run after the main thread's thread_local objects are gone, and may call the
/// library; they get another, new one, which the process takes with it. Use a type of one's own for T, since
/// there is one object a type.
template <typename T>
T& threadObject() {
  static thread_local bool gone = false;  // trivial: stays readable
  static thread_local T* late = nullptr;
  struct Holder {
    T value;
    ~Holder() { gone = true; }
  };
  if (!gone) {
    static thread_local Holder holder;
    return holder.value;
  }
  if (late == nullptr) late = new T;
  return *late;
}

}  // namespace tutti
