// Symbols of older versions than the linker would choose, so that a wheel loads where libstdc++ is older; tools/native.py
// includes this file in front of every other.
#ifndef TFSCHED_CC_CORE_SYMBOL_VERSIONS_H_
#define TFSCHED_CC_CORE_SYMBOL_VERSIONS_H_

// GCC 12 gave std::condition_variable::wait() a new version, which GCC 11's library (RHEL 9, Amazon Linux 2023) does not
// have. The old one differs only in that it cannot be left by pthread_cancel().
#if defined(__x86_64__) && defined(__linux__)
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
#endif

#endif  // TFSCHED_CC_CORE_SYMBOL_VERSIONS_H_
