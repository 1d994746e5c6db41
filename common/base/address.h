#ifndef EVENSHARD_COMMON_BASE_ADDRESS_H_
#define EVENSHARD_COMMON_BASE_ADDRESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace evenshard {

// Describes the addresses that ParseAddress accepts.
constexpr char kAllowedAddresses[] =
    "host:port or [IPv6]:port with a port of 0 to 65535, or unix:PATH of at most 107 bytes";

struct Address {
  std::string canonical;  // the same for all spellings of an address
  std::string host = {};  // in lower case, an IPv6 address in its canonical spelling; "": unix
  bool any_port = false;  // the port is 0
  // Nobody on another host can reach it: a unix socket, localhost, 127.0.0.0/8 or [::1].
  bool is_of_host = false;
};

// Parses "host:port", "[IPv6]:port" or "unix:PATH". Returns nullopt for any other text.
std::optional<Address> ParseAddress(absl::string_view text);

// An address of a config, with its field, and with who has one in words.
struct AddressField {
  std::string field;  // "shard[1].address"
  std::string address;
  absl::string_view each;  // "shard and spare"
};

// The addresses at which the processes of a run listen: those of the shards and spares, or in a
// ring of the workers.
std::vector<AddressField> ListenAddresses(const ClusterConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_ADDRESS_H_
