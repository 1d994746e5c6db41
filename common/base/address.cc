#include "common/base/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace evenshard {
namespace {

bool IsHostName(absl::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

// Returns the canonical spelling of an IPv6 address, or "" if `text` is not one.
std::string CanonicalIpv6(absl::string_view text) {
  in6_addr address;
  char canonical[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, std::string(text).c_str(), &address) != 1) return "";
  return inet_ntop(AF_INET6, &address, canonical, sizeof(canonical));
}

}  // namespace

std::optional<Address> ParseAddress(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "unix:")) {
    // The kernel's limit includes the terminating NUL.
    if (text.empty() || text.size() >= sizeof(sockaddr_un::sun_path)) return std::nullopt;
    return Address{.canonical = absl::StrCat("unix:", text), .is_of_host = true};
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  const absl::string_view digits = text.substr(colon + 1);
  int port;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return std::nullopt;
  }
  absl::string_view host = text.substr(0, colon);
  std::string canonical;
  if (absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) {
    canonical = CanonicalIpv6(host);
  } else if (IsHostName(host)) {
    canonical = absl::AsciiStrToLower(host);
  }
  if (canonical.empty()) return std::nullopt;
  in_addr ipv4;
  constexpr uint8_t kLoopback = 127;
  const bool is_loopback4 =
      inet_pton(AF_INET, canonical.c_str(), &ipv4) == 1 && ntohl(ipv4.s_addr) >> 24 == kLoopback;
  return Address{.canonical = absl::StrCat(canonical, " ", port),
                 .host = canonical,
                 .any_port = port == 0,
                 .is_of_host = is_loopback4 || canonical == "::1" || canonical == "localhost"};
}

std::vector<AddressField> ListenAddresses(const ClusterConfig& config) {
  std::vector<AddressField> addresses;
  if (config.topology() == ClusterConfig::RING) {
    for (int i = 0; i < config.ring().address_size(); ++i) {
      addresses.push_back(
          {absl::StrCat("ring.address[", i, "]"), config.ring().address(i), "worker"});
    }
    return addresses;
  }
  for (int i = 0; i < config.shard_size(); ++i) {
    addresses.push_back(
        {absl::StrCat("shard[", i, "].address"), config.shard(i).address(), "shard"});
  }
  for (int i = 0; i < config.recovery().spare_size(); ++i) {
    addresses.push_back({absl::StrCat("recovery.spare[", i, "].address"),
                         config.recovery().spare(i).address(), "shard and spare"});
  }
  return addresses;
}

}  // namespace evenshard
