//! What `ps` prints, as data.

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// CPU time in hundredths of a second, as on Linux.
    pub(crate) ticks: u64,
    /// When it started, to the second: tells it from another that got its number later.
    pub(crate) started: String,
    /// Its command line and, where the system shows it, its environment.
    command: String,
}

/// The columns asked for, each to be given in an option of its own.
pub(crate) const COLUMNS: [&str; 6] = ["pid=", "ppid=", "pgid=", "time=", "lstart=", "command="];

impl Entry {
    /// Whether a variable of its environment says this.
    pub(crate) fn has(&self, assignment: &str) -> bool {
        self.command.split(' ').any(|word| word == assignment)
    }
}

/// A line that is not understood is left out.
pub(crate) fn parse(printed: &str) -> Vec<Entry> {
    printed.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Entry> {
    let mut rest = line;
    let mut word = || {
        let text = rest.trim_start();
        let (word, behind) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        rest = behind;
        (!word.is_empty()).then_some(word)
    };
    let (pid, parent, group) = (word()?, word()?, word()?);
    let ticks = hundredths(word()?)?;
    // Day of the week, month, day, time, year.
    let started = [word()?, word()?, word()?, word()?, word()?].join(" ");
    Some(Entry {
        pid: pid.parse().ok()?,
        parent: parent.parse().ok()?,
        group: group.parse().ok()?,
        ticks,
        started,
        command: rest.trim_start().to_owned(),
    })
}

/// `1:02.34`, `00:01:02` and `2-00:00:00`.
fn hundredths(time: &str) -> Option<u64> {
    let (days, clock) = match time.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, time),
    };
    let (clock, part) = clock.split_once('.').unwrap_or((clock, "0"));
    let seconds = clock
        .split(':')
        .try_fold(0u64, |sum, part| part.parse::<u64>().ok().map(|part| sum * 60 + part))?;
    Some((days * 86_400 + seconds) * 100 + part.parse::<u64>().ok()?)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts a program")]
mod tests {
    use super::{COLUMNS, Entry, hundredths, parse};

    #[test]
    fn a_line_of_a_mac_is_understood() {
        let printed = "\
    1     0     1   1:11.10 Mon Nov 16 08:00:01 2026     /sbin/launchd
  712   700   712   0:00.02 Thu Nov 19 03:56:52 2026     node server.js --name x TOKEN=1 MARK=ab12 _=/usr/bin/node
garbage
  713   712   712   0:00.00 Thu Nov 19 03:56:53 2026     (sleep)
";
        let table = parse(printed);
        assert_eq!(table.len(), 3);
        let server = &table[1];
        assert_eq!((server.pid, server.parent, server.group, server.ticks), (712, 700, 712, 2));
        assert_eq!(server.started, "Thu Nov 19 03:56:52 2026");
        assert!(server.has("MARK=ab12") && !server.has("MARK=ab1") && !server.has("ARK=ab12"));
        assert_eq!(table[0].ticks, 7110);
        assert!(!table[2].has("MARK=ab12"));
    }

    #[test]
    fn times_of_all_systems_are_read() {
        assert_eq!(hundredths("0:00.02"), Some(2));
        assert_eq!(hundredths("00:01:02"), Some(6200));
        assert_eq!(hundredths("1-00:00:00"), Some(8_640_000));
        assert_eq!(hundredths("-"), None);
    }

    /// The program is the same everywhere, but for the variables.
    #[test]
    fn this_process_is_in_the_table() {
        let mut ps = std::process::Command::new("/bin/ps");
        ps.args(["-axww"]).env("LC_ALL", "C");
        for column in COLUMNS {
            ps.args(["-o", column]);
        }
        // A minimal system has no such program; a Mac always does.
        let Ok(printed) = ps.output() else { return };
        let table = parse(&String::from_utf8_lossy(&printed.stdout));
        let me = std::process::id().cast_signed();
        let own: Vec<&Entry> = table.iter().filter(|entry| entry.pid == me).collect();
        assert_eq!(own.len(), 1);
        assert_eq!(own[0].parent, nix::unistd::getppid().as_raw());
        assert!(table.iter().any(|entry| entry.parent == me), "ps itself");
    }
}
