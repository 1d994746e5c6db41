#ifndef PS_EXPERIMENTS_FRAMING_H_
#define PS_EXPERIMENTS_FRAMING_H_

namespace ps {

// What Ethernet, IP and TCP add to the payload of a link. A full segment of a TCP connection
// carries mtu - 52 bytes: 20 are the IP header's and 32 TCP's with timestamps. A shaper (tc
// tbf) counts 14 bytes of Ethernet header more for every segment, also where the kernel hands
// it many segments as one packet (GSO). On a cable 24 more pass: preamble, check sequence and
// the gap between frames. HTTP/2 and the chunk headers, below 0.1 %, and acknowledgements,
// which share packets with the data of the other direction, are left out.
struct Framing {
  static constexpr int kIpAndTcpBytes = 52;
  static constexpr int kEthernetBytes = 14;
  static constexpr int kCableBytes = 24;
  // What IPv4 demands, and what fits into its length field.
  static constexpr int kMinMtu = 576;
  static constexpr int kMaxMtu = 65535;

  int mtu = 1500;
  bool on_cable = false;
};

// Of a link of `gbps` (10^9 bits per second, one direction).
inline double PayloadBytesPerSecond(double gbps, const Framing& framing) {
  const double counted =
      framing.mtu + Framing::kEthernetBytes + (framing.on_cable ? Framing::kCableBytes : 0);
  return gbps * 1e9 / 8 * (framing.mtu - Framing::kIpAndTcpBytes) / counted;
}

}  // namespace ps

#endif  // PS_EXPERIMENTS_FRAMING_H_
