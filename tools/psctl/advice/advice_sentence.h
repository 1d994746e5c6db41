#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_SENTENCE_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_SENTENCE_H_

#include <string>

#include "tools/psctl/advice/advice.h"

namespace evenshard {

// Puts an advice into words, from its choices: which one to take, also if that is one worker alone
// or if all are as fast; what bounds it; how fast the next way is; what a change of what is
// computed would give; and whether the model is too small for it to matter. REQUIRES: `same` is not
// empty.
std::string AdviceSentence(const Advice& advice);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_SENTENCE_H_
