#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_FRAMING_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_FRAMING_H_

namespace evenshard {

// The overhead of Ethernet, IP and TCP on a link. A full segment of a TCP connection carries mtu -
// 52 bytes, since the IP header has 20 bytes and the TCP header with timestamps 32. A shaper (tc
// tbf) counts another 14 bytes of Ethernet header for every segment, even if the kernel hands it
// many segments as one packet (GSO). A cable carries 24 more: preamble, check sequence and the gap
// between frames. HTTP/2 and chunk headers are left out because they are below 0.1 %, and
// acknowledgements because they share packets with the data of the other direction.
struct Framing {
  static constexpr int kIpAndTcpBytes = 52;
  static constexpr int kEthernetBytes = 14;
  static constexpr int kCableBytes = 24;
  // The least that IPv4 demands, and the most that its length field can hold.
  static constexpr int kMinMtu = 576;
  static constexpr int kMaxMtu = 65535;

  int mtu = 1500;
  bool on_cable = false;
};

// Returns the payload rate of a link of `gbps` (10^9 bits per second) in one direction.
inline double PayloadBytesPerSecond(double gbps, const Framing& framing) {
  const double counted =
      framing.mtu + Framing::kEthernetBytes + (framing.on_cable ? Framing::kCableBytes : 0);
  return gbps * 1e9 / 8 * (framing.mtu - Framing::kIpAndTcpBytes) / counted;
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_FRAMING_H_
