//! The seccomp allowlist of a worker. Any other system call kills it.

use std::collections::BTreeMap;

use nix::libc;
use nix::unistd::getpid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::{LinkKind, OUTWARD, SOCKET};

/// Calls allowed with any arguments.
const FREE: [libc::c_long; 16] = [
    // Memory, without the two that could make it executable.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Time; the CPU clock is not in the vDSO.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    // Touched memory, to tell an engine out of memory from a script that throws null.
    libc::SYS_getrusage,
    // Waiting for the socket, also after SIGCONT.
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
    // Random numbers for `crypto`.
    libc::SYS_getrandom,
    // Exit and abort: the runtime removes its signal stack.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
];

/// Installs the filter.
pub(super) fn install(link_kind: LinkKind) -> Result<(), String> {
    let program = program(link_kind).map_err(|error| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}

fn program(link_kind: LinkKind) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FREE.into_iter().map(|call| (call, Vec::new())).collect();
    let speaking = match link_kind {
        LinkKind::Socket => [(libc::SYS_recvfrom, SOCKET), (libc::SYS_sendto, SOCKET)],
        LinkKind::Pipes => [(libc::SYS_read, SOCKET), (libc::SYS_write, OUTWARD)],
    };
    for (call, descriptor) in speaking {
        rules.insert(call, vec![first_argument(u64::from(descriptor.unsigned_abs()))?]);
    }
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![not_executable()?]);
    }
    // An abort signals this process, and only this process, by these.
    for call in [libc::SYS_getpid, libc::SYS_gettid] {
        rules.insert(call, Vec::new());
    }
    let own = u64::from(getpid().as_raw().unsigned_abs());
    rules.insert(libc::SYS_tgkill, vec![first_argument(own)?]);
    // The C library of static builds names the thread alone, and this process has one. Without it an engine that aborts
    // because memory is full would look like one that tried something forbidden.
    #[cfg(target_env = "musl")]
    rules.insert(libc::SYS_tkill, vec![first_argument(own)?]);

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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel is told of a call: its number and six arguments.
    #[derive(Clone, Copy)]
    struct Call {
        number: u32,
        arguments: [u64; 6],
    }

    fn call(number: libc::c_long, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call { number: u32::try_from(number).unwrap(), arguments: all }
    }

    /// Runs the filter as the kernel would; whether the call is allowed.
    fn allows(program: &BpfProgram, call: Call, architecture: u32) -> bool {
        let load = |offset: u32| match offset {
            0 => call.number,
            4 => architecture,
            16..64 => {
                let argument = call.arguments[(offset as usize - 16) / 8];
                (if offset.is_multiple_of(8) { argument } else { argument >> 32 }) as u32
            }
            _ => panic!("a load from {offset}"),
        };
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let k = step.k;
            let mut jump = |holds| at += usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                0x20 => accumulator = load(k),
                0x54 => accumulator &= k,
                0x15 => jump(accumulator == k),
                0x25 => jump(accumulator > k),
                0x35 => jump(accumulator >= k),
                0x05 => at += k as usize,
                0x06 if k == libc::SECCOMP_RET_ALLOW => return true,
                0x06 if k == libc::SECCOMP_RET_KILL_PROCESS => return false,
                code => panic!("step {code:#x} {k:#x}"),
            }
        }
    }

    const OURS: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };

    #[test]
    fn only_what_is_on_the_list_passes() {
        let program = program(LinkKind::Socket).unwrap();
        let bound = [
            libc::SYS_recvfrom,
            libc::SYS_sendto,
            libc::SYS_mmap,
            libc::SYS_mprotect,
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_tgkill,
        ];
        for number in 0..1_024 {
            // Arguments for which those with conditions are refused, but for the two about protection.
            let refused = call(number, &[7_777_777, 0, 0xffff, 0, 0, 0]);
            let listed =
                FREE.contains(&number) || [libc::SYS_getpid, libc::SYS_gettid].contains(&number);
            assert_eq!(allows(&program, refused, OURS), listed, "call {number}");
            // The x32 ABI has the same calls under other numbers.
            assert!(
                !allows(&program, call(number | 0x4000_0000, &[]), OURS),
                "call {number} of x32"
            );
            assert!(!allows(&program, call(number, &[]), 0x4000_0003), "call {number} of i386");
        }
        assert_eq!(FREE.len() + bound.len(), 23);
    }

    #[test]
    fn pipes_are_read_and_written_and_are_no_sockets() {
        let program = program(LinkKind::Pipes).unwrap();
        for (number, argument, passes) in [
            (libc::SYS_read, 0, true),
            (libc::SYS_read, 1, false),
            (libc::SYS_write, 1, true),
            (libc::SYS_write, 0, false),
            (libc::SYS_write, 2, false),
            (libc::SYS_sendto, 0, false),
            (libc::SYS_recvfrom, 0, false),
        ] {
            assert_eq!(
                allows(&program, call(number, &[argument]), OURS),
                passes,
                "{number} {argument}"
            );
        }
    }

    #[test]
    fn no_memory_becomes_executable() {
        let program = program(LinkKind::Socket).unwrap();
        for number in [libc::SYS_mmap, libc::SYS_mprotect] {
            for protection in 0..16_u64 {
                let executable = protection & 4 != 0;
                let asked = call(number, &[0, 4096, protection]);
                assert_eq!(allows(&program, asked, OURS), !executable, "protection {protection}");
                let high = call(number, &[0, 4096, protection | 1 << 40]);
                assert_eq!(allows(&program, high, OURS), !executable);
            }
        }
    }

    #[test]
    fn only_the_socket_and_only_itself() {
        let program = program(LinkKind::Socket).unwrap();
        let own = u64::from(std::process::id());
        for (number, argument, passes) in [
            (libc::SYS_sendto, 0, true),
            (libc::SYS_sendto, 1, false),
            (libc::SYS_recvfrom, 0, true),
            (libc::SYS_recvfrom, 3, false),
            (libc::SYS_tgkill, own, true),
            (libc::SYS_tgkill, own + 1, false),
            (libc::SYS_tgkill, u64::from(u32::MAX), false),
        ] {
            assert_eq!(
                allows(&program, call(number, &[argument]), OURS),
                passes,
                "{number} {argument}"
            );
        }
    }
}
