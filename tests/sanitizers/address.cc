// What a program under AddressSanitizer is started with; ASAN_OPTIONS and LSAN_OPTIONS add to it.

extern "C" const char* __asan_default_options() {
  return "detect_stack_use_after_return=1:allocator_may_return_null=1";
}

// c-ares 1.18, which gRPC asks for addresses, loses a copy of the name "localhost" at each look-up.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares.so"; }
