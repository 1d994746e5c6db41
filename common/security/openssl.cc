#include "common/security/openssl.h"

#include <ctime>

namespace evenshard {
namespace {

absl::Time TimeOf(const ASN1_TIME* time) {
  tm utc = {};
  return ASN1_TIME_to_tm(time, &utc) == 1 ? absl::FromTM(utc, absl::UTCTimeZone())
                                          : absl::InfinitePast();
}

}  // namespace

absl::Time BeginOf(const X509* certificate) { return TimeOf(X509_get0_notBefore(certificate)); }
absl::Time EndOf(const X509* certificate) { return TimeOf(X509_get0_notAfter(certificate)); }

}  // namespace evenshard
