//! The system calls a worker lives on. Any other kills it.

use std::collections::BTreeMap;

use nix::libc;
use nix::unistd::getpid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::SOCKET;

/// Calls allowed with any arguments.
const FREE: [libc::c_long; 15] = [
    // Memory, without the two that could make it executable.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Time; most of it comes without a call, but the processor clock does not.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    // Waiting for the socket, and going on waiting after a stop.
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
    // Random numbers for `crypto`.
    libc::SYS_getrandom,
    // Dying in order: the runtime takes down its signal stack, an abort finds out who it is.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
];

/// Installs the filter.
pub(super) fn install() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FREE.into_iter().map(|call| (call, Vec::new())).collect();
    let socket = u64::from(SOCKET.unsigned_abs());
    for call in [libc::SYS_recvfrom, libc::SYS_sendto] {
        rules.insert(call, vec![first_argument(socket)?]);
    }
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![not_executable()?]);
    }
    // Who we are, and ending ourselves: an abort raises its signal by these, and only toward itself.
    for call in [libc::SYS_getpid, libc::SYS_gettid] {
        rules.insert(call, Vec::new());
    }
    let own = u64::from(getpid().as_raw().unsigned_abs());
    rules.insert(libc::SYS_tgkill, vec![first_argument(own)?]);

    SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?
    .try_into()
}

fn first_argument(value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        value,
    )?])
}

/// The third argument of both calls is the protection.
fn not_executable() -> Result<SeccompRule, seccompiler::BackendError> {
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    SeccompRule::new(vec![SeccompCondition::new(
        2,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(executable),
        0,
    )?])
}
