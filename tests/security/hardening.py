"""What makes faults harder to exploit, as it can be read from a program or library."""

import os
import re
import subprocess

# Every program and library must have each of these.
POSITION_INDEPENDENT = "code that can be anywhere (PIE)"
RELRO = "tables that are read-only after the start (GNU_RELRO)"
BIND_NOW = "all symbols found at the start (BIND_NOW)"
DATA_ONLY_STACK = "a stack that is not executable (GNU_STACK)"
NO_TEXT_RELOCATIONS = "code that the loader does not change (no TEXTREL)"
OWN_PLACE = "libraries from its own place only (RUNPATH)"
# And the project's own code in it these.
STACK_PROTECTOR = "functions that notice an overwritten stack (__stack_chk_fail)"
STACK_CLASH = "large frames that touch each page (-fstack-clash-protection)"
FORTIFY = "calls with the size of what they write to (__*_chk)"
INDIRECT_BRANCHES = "marked targets of indirect calls (endbr64)"


def _output(*command):
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout


def missing_in_file(binary, is_program):
    """Returns what a file lacks of what its loader heeds."""
    header = _output("readelf", "--file-header", "--segments", "--wide", binary)
    dynamic = _output("readelf", "--dynamic", "--wide", binary)
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    places = [place for path in paths for place in path.split(":")]
    has = {
        POSITION_INDEPENDENT: re.search(r"Type: +DYN", header)
        and (not is_program or re.search(r"\(FLAGS_1\).* PIE\b", dynamic)),
        RELRO: re.search(r"^ +GNU_RELRO ", header, re.M),
        BIND_NOW: re.search(r"\(FLAGS(_1)?\).*\b(BIND_)?NOW\b", dynamic),
        DATA_ONLY_STACK: re.search(r"^ +GNU_STACK .* RW +0x", header, re.M),
        NO_TEXT_RELOCATIONS: "TEXTREL" not in dynamic,
        OWN_PLACE: all(place.startswith("$ORIGIN") for place in places),
    }
    return [name for name in has if not has[name]]


def missing_in_code(binary):
    """Returns what the project's own functions lack, in a file that still has its symbols."""
    # Those that others can see. Of the rest the compiler may know all callers, who call directly.
    seen = {
        line.split()[-1]
        for line in _output("nm", "--defined-only", binary).splitlines()
        if re.search(r" [TW] \S*evenshard", line)
    }
    unmarked, calls, probes = set(), set(), False
    name, is_first = "", False
    for line in _output("objdump", "--disassemble", "--no-show-raw-insn", binary).splitlines():
        if begin := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            name, is_first = begin[1], True
            continue
        if "evenshard" not in name or "\t" not in line:
            continue
        instruction = line.partition("\t")[2]
        if is_first and name in seen and not instruction.startswith("endbr64"):
            unmarked.add(name)
        is_first = False
        if call := re.match(r"(?:call|jmp) .*<(\w+)(?:@plt)?>", instruction):
            calls.add(call[1])
        probes = probes or re.match(r"orq +\$0x0,\(%rsp\)", instruction)
    has = {
        STACK_PROTECTOR: "__stack_chk_fail" in calls,
        STACK_CLASH: probes,
        FORTIFY: any(re.fullmatch(r"__\w+_chk", call) for call in calls),
        INDIRECT_BRANCHES: seen and not unmarked,
    }
    return [name for name in has if not has[name]]
