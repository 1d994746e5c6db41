#ifndef EVENSHARD_TESTS_SERVER_ARITHMETIC_ONE_INSTRUCTION_SET_H_
#define EVENSHARD_TESTS_SERVER_ARITHMETIC_ONE_INSTRUCTION_SET_H_

// Included before a source file with loops over elements, this compiles them for one instruction
// set, PS_TARGET, instead of one that is chosen when the program starts.

#include "common/base/element_loop.h"

#undef PS_VECTORIZED
#ifdef PS_TARGET
#define PS_VECTORIZED __attribute__((target(PS_TARGET)))
#else
#define PS_VECTORIZED
#endif

#endif  // EVENSHARD_TESTS_SERVER_ARITHMETIC_ONE_INSTRUCTION_SET_H_
