#include "common/net/syn_filter.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace evenshard {
namespace {

constexpr size_t kMostHosts = 64;

// The program sees a packet from its TCP header on, and what is before that at SKF_NET_OFF.
constexpr uint32_t kTcpFlags = 13;
constexpr uint32_t kSyn = 0x02;
constexpr uint32_t kSynAck = 0x12;
constexpr uint32_t kIp = SKF_NET_OFF;
constexpr uint32_t kIp4Source = kIp + 12;
constexpr uint32_t kIp6Source = kIp + 8;
constexpr uint32_t kDrop = 0;
constexpr uint32_t kKeep = 0xffffffff;

using Program = std::vector<sock_filter>;

void LoadByte(uint32_t at, uint32_t mask, Program* program) {
  program->push_back(BPF_STMT(BPF_LD | BPF_B | BPF_ABS, at));
  program->push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
}

void LoadWord(uint32_t at, Program* program) {
  program->push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
}

// Goes on if what was loaded is `value`, and otherwise behind as many instructions more.
void SkipUnless(uint32_t value, uint8_t instructions, Program* program) {
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, instructions));
}

void Return(uint32_t verdict, Program* program) {
  program->push_back(BPF_STMT(BPF_RET | BPF_K, verdict));
}

uint32_t WordOf(const std::string& host, size_t at) {
  uint32_t word;
  std::memcpy(&word, host.data() + at, sizeof(word));
  return ntohl(word);
}

void DropHost(const std::string& host, Program* program) {
  const bool is_ip4 = host.size() == sizeof(uint32_t);
  LoadByte(kIp, 0xf0, program);
  if (is_ip4) {
    SkipUnless(0x40, 3, program);
    LoadWord(kIp4Source, program);
  } else {
    SkipUnless(0x60, 5, program);
    LoadWord(kIp6Source, program);
    SkipUnless(WordOf(host, 0), 3, program);
    LoadWord(kIp6Source + 4, program);
  }
  SkipUnless(WordOf(host, is_ip4 ? 0 : 4), 1, program);
  Return(kDrop, program);
}

}  // namespace

bool DropConnectionsFrom(absl::Span<const std::string> hosts, int listening) {
  RemoveFilter(listening);
  if (hosts.empty()) return true;
  Program program;
  LoadByte(kTcpFlags, kSynAck, &program);
  SkipUnless(kSyn, 1, &program);
  program.push_back(BPF_STMT(BPF_JMP | BPF_JA, 1));
  Return(kKeep, &program);
  for (const std::string& host : hosts.first(std::min(hosts.size(), kMostHosts))) {
    DropHost(host, &program);
  }
  Return(kKeep, &program);
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()),
                             .filter = program.data()};
  return setsockopt(listening, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

void RemoveFilter(int connection) {
  const int unused = 0;
  setsockopt(connection, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

}  // namespace evenshard
