#ifndef EVENSHARD_SERVER_AGREEMENT_AGREEMENT_SUBJECT_H_
#define EVENSHARD_SERVER_AGREEMENT_AGREEMENT_SUBJECT_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "proto/agreement.pb.h"

namespace evenshard {

// What the primary of a slot knows and asks of something on which the slots agree
// (AgreementDecider): Clipping and Quorum. Thread-safe.
class AgreementSubject {
 public:
  virtual ~AgreementSubject() = default;

  // What the primary reports, but for its view and the report's number.
  virtual AgreementReport report() const = 0;
  // The iteration whose result a report asks for.
  virtual std::optional<uint64_t> AskedBy(const AgreementReport& report) const = 0;
  // The iteration whose result an answer has.
  virtual std::optional<uint64_t> AnsweredBy(const AgreementAnswer& answer) const = 0;
  // Takes over the result of what it asked for.
  virtual void Learn(const AgreementAnswer& answer) = 0;
  // "the norm of the gradient", for errors.
  virtual absl::string_view what() const = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_AGREEMENT_SUBJECT_H_
