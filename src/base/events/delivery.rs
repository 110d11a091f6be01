//! [`Events`]: takes events from everywhere in a database and calls the user's listener.
//!
//! [`Events::emit`] puts an event at the end of a list, under a lock that is never held during
//! anything else. So it may be called with any lock held, and the list has the order in which
//! things happened under those locks. The thread `siftdb-events` takes the events from there and
//! calls the listener without a lock. Without a listener there is no thread, and an event is not
//! even made.
//!
//! The thread ends after the last [`Events`] was dropped and the list is empty. Nobody waits for
//! that: a reader may be the one who drops it. [`Events::wait`] waits until the list is empty.

use crate::base::error::{Error, Result};
use crate::base::events::event::{Event, EventListener};
use crate::base::process::Process;
use crate::base::sync::{Arc, Condvar, Mutex, thread};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Events that wait for the listener, at most.
const WAITING_MAX: usize = 4096;

/// Where events go: to the listener of the database, or nowhere. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<Sender>>);

/// Ends the thread when it is dropped.
struct Sender {
    inbox: Arc<Inbox>,
    process: Process,
}

#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    /// Signalled when an event comes in, when the last one was delivered, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// The listener is being called.
    is_calling: bool,
    /// No event will come in any more.
    has_ended: bool,
    /// The thread that calls the listener, once it runs.
    thread: Option<thread::ThreadId>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Events(on)" } else { "Events(off)" })
    }
}

impl Events {
    /// Starts the thread that calls `listener`, if there is one.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(listener: Option<Arc<dyn EventListener>>) -> Result<Self> {
        let Some(listener) = listener else { return Ok(Events::default()) };
        let inbox = Arc::new(Inbox::default());
        let calls = Arc::clone(&inbox);
        let run = move || deliver(&calls, &*listener);
        let thread = thread::Builder::new().name("siftdb-events".into()).spawn(run);
        thread.map_err(|error| Error::io("spawn", "siftdb-events", error))?;
        Ok(Events(Some(Arc::new(Sender { inbox, process: Process::current() }))))
    }

    /// True if there is a listener.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an event, which is made only if there is a listener. `event` may take locks that the
    /// caller may take.
    #[inline]
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if let Some(sender) = &self.0 {
            sender.send(event);
        }
    }

    /// Waits until the listener got every event so far. The listener itself does not wait.
    pub(crate) fn wait(&self) {
        let Some(sender) = self.0.as_ref().filter(|sender| sender.process.is_current()) else {
            return;
        };
        let mut waiting = sender.inbox.waiting.lock();
        while waiting.thread != Some(thread::current().id())
            && (waiting.is_calling || !waiting.events.is_empty())
        {
            sender.inbox.changed.wait(&mut waiting);
        }
    }
}

impl Sender {
    #[cold]
    fn send(&self, event: impl FnOnce() -> Event) {
        // A forked child has no thread, and another thread may have held the lock at the fork.
        if !self.process.is_current() {
            return;
        }
        let event = event();
        self.inbox.waiting.lock().push(event);
        self.inbox.changed.notify_all();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.inbox.waiting.lock().has_ended = true;
            self.inbox.changed.notify_all();
        }
    }
}

impl Waiting {
    fn push(&mut self, event: Event) {
        if self.events.len() < WAITING_MAX {
            self.events.push_back(event);
            return;
        }
        // In the place of the events that are missing, so it is one more at most.
        match self.events.back_mut() {
            Some(Event::Missed { events }) => *events += 1,
            _ => self.events.push_back(Event::Missed { events: 1 }),
        }
    }
}

/// The thread: calls the listener until nothing can come in any more.
fn deliver(inbox: &Inbox, listener: &dyn EventListener) {
    let mut waiting = inbox.waiting.lock();
    waiting.thread = Some(thread::current().id());
    loop {
        let Some(event) = waiting.events.pop_front() else {
            if waiting.has_ended {
                return;
            }
            inbox.changed.notify_all();
            inbox.changed.wait(&mut waiting);
            continue;
        };
        waiting.is_calling = true;
        drop(waiting);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| listener.on_event(&event))) {
            // The panic was reported by its hook. The drop of what it carries is user code, too,
            // and could panic once more.
            std::mem::forget(payload);
        }
        waiting = inbox.waiting.lock();
        waiting.is_calling = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::mpsc;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn missed(events: u64) -> Event {
        Event::Missed { events }
    }

    /// A listener that sends what it gets, as text.
    fn texts() -> (Events, mpsc::Receiver<String>) {
        let (sender, texts) = mpsc::channel();
        let listener = move |event: &Event| drop(sender.send(format!("{event:?}")));
        (Events::start(Some(Arc::new(listener))).unwrap(), texts)
    }

    #[test]
    fn events_arrive_in_order_before_a_wait_ends() {
        let (events, texts) = texts();
        for round in 0..50 {
            (0..20).for_each(|n| events.emit(|| missed(20 * round + n)));
            events.wait();
            let got: Vec<_> = texts.try_iter().collect();
            let wanted: Vec<_> = (0..20).map(|n| format!("{:?}", missed(20 * round + n))).collect();
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn events_after_the_last_drop_still_arrive() {
        let (events, texts) = texts();
        (0..100).for_each(|n| events.clone().emit(|| missed(n)));
        drop(events);
        // The channel ends with the thread, which drops the listener.
        assert_eq!(texts.iter().count(), 100);
    }

    #[test]
    fn a_slow_listener_learns_how_many_are_missing() {
        let (entered, leaves) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (sender, texts) = mpsc::channel();
        let barriers = (Arc::clone(&entered), Arc::clone(&leaves));
        let listener = move |event: &Event| {
            let _ = sender.send(format!("{event:?}"));
            if matches!(event, Event::Resumed { .. }) {
                barriers.0.wait();
                barriers.1.wait();
            }
        };
        let events = Events::start(Some(Arc::new(listener))).unwrap();
        let ended = || Event::StallBegun { cause: "test" };
        events.emit(|| Event::Resumed { duration: std::time::Duration::ZERO });
        entered.wait();
        (0..WAITING_MAX + 7).for_each(|_| events.emit(ended));
        leaves.wait();
        events.wait();
        events.emit(ended);
        events.wait();
        let got: Vec<_> = texts.try_iter().collect();
        assert_eq!(got.len(), WAITING_MAX + 3);
        assert_eq!(got[WAITING_MAX + 1], format!("{:?}", missed(7)));
        assert_eq!(got[WAITING_MAX + 2], format!("{:?}", ended()));
    }

    /// What a panic carries; its drop panics once more.
    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("a payload that panics");
        }
    }

    #[test]
    fn a_panic_ends_one_call_only() {
        let (sender, texts) = mpsc::channel();
        let listener = move |event: &Event| {
            let _ = sender.send(format!("{event:?}"));
            if matches!(event, Event::Missed { events: 1 }) {
                std::panic::panic_any(PanicsOnDrop);
            }
        };
        let events = Events::start(Some(Arc::new(listener))).unwrap();
        (0..3).for_each(|n| events.emit(|| missed(n)));
        events.wait();
        assert_eq!(texts.try_iter().count(), 3);
    }

    /// The list is empty then, but the listener has not returned.
    #[test]
    fn a_wait_includes_the_running_call() {
        let (entered, returned) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let (enters, returns) = (Arc::clone(&entered), Arc::clone(&returned));
        let listener = move |_: &Event| {
            enters.wait();
            std::thread::sleep(std::time::Duration::from_millis(50));
            returns.store(true, Ordering::Relaxed);
        };
        let events = Events::start(Some(Arc::new(listener))).unwrap();
        events.emit(|| missed(1));
        entered.wait();
        events.wait();
        assert!(returned.load(Ordering::Relaxed));
    }

    /// In a child no thread calls the listener, and a thread of the parent may hold the lock.
    #[test]
    fn forked_children_neither_note_nor_wait() {
        let (mut events, texts) = texts();
        let sender = events.0.as_mut().and_then(Arc::get_mut).unwrap();
        sender.process = Process::other();
        let inbox = Arc::clone(&sender.inbox);
        let mut held = inbox.waiting.lock();
        events.emit(|| panic!("made"));
        events.wait();
        drop(events);
        assert!(!held.has_ended && held.events.is_empty());
        // The thread is the parent's; here it ends for the test.
        held.has_ended = true;
        drop(held);
        inbox.changed.notify_all();
        assert_eq!(texts.iter().count(), 0);
    }

    #[test]
    fn without_a_listener_no_event_is_made() {
        let events = Events::start(None).unwrap();
        events.emit(|| panic!("made"));
        events.wait();
        assert!(!events.is_on());
    }
}
