/* A library of a version that is not ours. */
__attribute__((visibility("default"))) int evenshard_abi(void) { return 1000; }
