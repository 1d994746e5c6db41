#ifndef EVENSHARD_TESTS_SERVER_ARITHMETIC_ONE_INSTRUCTION_SET_H_
#define EVENSHARD_TESTS_SERVER_ARITHMETIC_ONE_INSTRUCTION_SET_H_

// Included before a source file with loops over elements, this compiles them for one instruction
// set, EVENSHARD_TARGET, instead of one that is chosen when the program starts.

#include "common/base/element_loop.h"

#undef EVENSHARD_VECTORIZED
#ifdef EVENSHARD_TARGET
#define EVENSHARD_VECTORIZED __attribute__((target(EVENSHARD_TARGET)))
#else
#define EVENSHARD_VECTORIZED
#endif

#endif  // EVENSHARD_TESTS_SERVER_ARITHMETIC_ONE_INSTRUCTION_SET_H_
