#include "common/net/same_host.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "common/net/unix_socket.h"

namespace evenshard {
namespace {

// Returns whether both are the same IPv4 or IPv6 address. Ports are not compared.
bool AreSame(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const uint32_t ip = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return ip >> 24 == IN_LOOPBACKNET;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

bool MayShareMemory(const ExchangeConfig& exchange) {
  return exchange.shared_memory() && exchange.gradient_encoding() == FLOAT32 &&
         exchange.parameter_encoding() == FLOAT32;
}

bool IsOfThisHost(const std::string& address) {
  if (UnixPath(address).has_value()) return true;
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> resolved(found, &freeaddrinfo);
  ifaddrs* listed = nullptr;
  if (getifaddrs(&listed) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(listed, &freeifaddrs);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (IsLoopback(each->ai_addr)) return true;
    for (const ifaddrs* own = listed; own != nullptr; own = own->ifa_next) {
      if (AreSame(each->ai_addr, own->ifa_addr)) return true;
    }
  }
  return false;
}

}  // namespace evenshard
