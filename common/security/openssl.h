#ifndef EVENSHARD_COMMON_SECURITY_OPENSSL_H_
#define EVENSHARD_COMMON_SECURITY_OPENSSL_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

#include "absl/time/time.h"

// Objects of OpenSSL's library that free themselves.

namespace evenshard {

template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Certificate = std::unique_ptr<X509, FreeWith<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<&EVP_PKEY_free>>;

// When a certificate begins and ends to be valid.
absl::Time BeginOf(const X509* certificate);
absl::Time EndOf(const X509* certificate);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_OPENSSL_H_
