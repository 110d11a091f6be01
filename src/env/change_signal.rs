//! [`ChangeSignal`]: waits until a file of a directory has changed.
//!
//! The file system tells it where it can ([`Env::change_signal`]). A file system tells of the
//! changes of its own machine only, so it looks again after a second in any case. Where nothing
//! tells, it looks again after pauses that grow.

use crate::env::api::Env;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// The first pause without a signal, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// The longest wait for a signal.
const SIGNAL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits for changes of one directory.
#[derive(Debug)]
pub(crate) struct ChangeSignal {
    /// Readable after a change; `None` if nothing tells.
    signal: Option<File>,
    pause: Duration,
}

impl ChangeSignal {
    /// Tells of changes that are made from now on.
    pub(crate) fn of(env: &dyn Env, directory: &Path) -> Self {
        // A process may have too few descriptors, too: pauses need none.
        let signal = env.change_signal(directory).ok().map(File::from);
        ChangeSignal { signal, pause: PAUSES.0 }
    }

    /// Waits for a change, or until it is time to look again, but at most `longest`. True if there
    /// was a signal.
    pub(crate) fn wait(&mut self, longest: Duration) -> bool {
        let Some(signal) = &self.signal else {
            std::thread::sleep(self.pause.min(longest));
            self.pause = (self.pause * 2).min(PAUSES.1);
            return false;
        };
        let signalled = wait_readable(signal, longest.min(SIGNAL_WAIT_MAX));
        let mut signal = signal;
        // What changes from here on is told again: the caller looks after this.
        while signal.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
        signalled
    }
}

/// Waits until there is something to read; false if there was nothing for that long.
#[cfg(target_os = "linux")]
fn wait_readable(file: &File, longest: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let longest =
        Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
    // An interrupted wait is a short one.
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&longest)).is_ok_and(|ready| ready > 0)
}

/// No Env of siftdb has a signal here.
#[cfg(not(target_os = "linux"))]
fn wait_readable(_: &File, longest: Duration) -> bool {
    std::thread::sleep(longest);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::disk::DiskEnv;
    use crate::env::mem::MemEnv;
    use std::time::Instant;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_file_system_tells_of_each_change() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let env = DiskEnv::new();
        let mut signal = ChangeSignal::of(&env, directory.path());
        assert!(!signal.wait(Duration::ZERO));
        let mut file = env.create_new(&at("a")).unwrap();
        assert!(signal.wait(Duration::ZERO), "created");
        assert!(!signal.wait(Duration::ZERO), "told once");
        file.write_at(0, b"contents").unwrap();
        assert!(signal.wait(Duration::ZERO), "written");
        env.rename(&at("a"), &at("b")).unwrap();
        assert!(signal.wait(Duration::ZERO), "renamed");
        env.open_random(&at("b")).unwrap().read_exact_at(0, &mut [0; 8]).unwrap();
        assert!(!signal.wait(Duration::ZERO), "read");
        std::thread::scope(|scope| {
            scope.spawn(|| file.write_at(8, b"more").unwrap());
            assert!(signal.wait(Duration::from_secs(60)), "written by another thread");
        });
        env.remove(&at("b")).unwrap();
        assert!(signal.wait(Duration::ZERO), "removed");
        // A network file system may not tell.
        let begun = Instant::now();
        assert!(!signal.wait(Duration::from_secs(60)));
        assert!(begun.elapsed() < 30 * SIGNAL_WAIT_MAX);
    }

    #[test]
    fn pauses_grow_where_nothing_tells() {
        let mut signal = ChangeSignal::of(&MemEnv::new(), Path::new("/"));
        let pauses: Vec<_> = (0..9)
            .map(|_| {
                let pause = signal.pause;
                assert!(!signal.wait(Duration::ZERO));
                pause
            })
            .collect();
        assert_eq!((pauses[0], pauses[8]), PAUSES);
        assert!(pauses.is_sorted());
        let begun = Instant::now();
        signal.wait(PAUSES.0);
        assert!((PAUSES.0..PAUSES.1).contains(&begun.elapsed()));
    }
}
