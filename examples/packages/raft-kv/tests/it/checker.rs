//! Whether a history of calls is linearizable: whether there is an order of all calls, in which
//! each answer is that of a single key, and no call comes before one that had ended when it began.
//!
//! Keys are independent of each other, so each key is checked alone. The search is that of Wing and
//! Gong: take any call that may come next, see whether its answer fits, continue from there. A set
//! of states that were tried ("these calls, and this value after them") keeps it from trying them
//! again in another order.
//!
//! A call without an answer has no end. It may come anywhere after its begin, or never.

use std::collections::HashSet;

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it began. Moments are numbers that all clients draw from one counter.
    pub begin: u64,
    /// When the answer was there; `None` if it is unknown whether the call was done.
    pub end: Option<u64>,
    /// What was asked, and what was answered.
    pub action: Action,
}

/// A value of the key; `None` is "no value".
pub type Value = Option<String>;

/// What was asked of the key, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A put, or a deletion.
    Write(Value),
    /// A read, with its answer. A read without an answer says nothing and is left out.
    Read(Value),
    CompareAndSet {
        expected: Value,
        new: Value,
        /// The answer: the value before. `None` if there was no answer.
        found: Option<Value>,
    },
}

/// The value after `action`, or `None` if its answer does not fit to `value`.
pub fn step(value: &Value, action: &Action) -> Option<Value> {
    match action {
        Action::Write(new) => Some(new.clone()),
        Action::Read(answer) => (answer == value).then(|| value.clone()),
        Action::CompareAndSet { expected, new, found } => {
            let fits = found.as_ref().is_none_or(|found| found == value);
            let after = if value == expected { new } else { value };
            fits.then(|| after.clone())
        }
    }
}

/// Calls that are done, a bit each, and the value after them.
type State = (Vec<u64>, Value);

/// Whether there is an order for these calls of one key, which has no value at first.
pub fn is_linearizable(calls: &[Call]) -> bool {
    let begin: State = (vec![0; calls.len().div_ceil(64)], None);
    let mut tried = HashSet::from([begin.clone()]);
    let mut next = vec![begin];
    while let Some((done, value)) = next.pop() {
        let is_open = |at: &usize| done[at / 64] & (1 << (at % 64)) == 0;
        let open = || (0..calls.len()).filter(is_open);
        let Some(first_end) = open().filter_map(|at| calls[at].end).min() else {
            // All that is left has no answer, and may never have been done.
            return true;
        };
        // What began after this end cannot come before the call that ended there.
        let mut may_be_next: Vec<usize> =
            open().filter(|at| calls[*at].begin < first_end).collect();
        // The last is tried first: the call that ended first.
        may_be_next.sort_by_key(|at| std::cmp::Reverse(calls[*at].end.unwrap_or(u64::MAX)));
        for at in may_be_next {
            if let Some(after) = step(&value, &calls[at].action) {
                let mut done = done.clone();
                done[at / 64] |= 1 << (at % 64);
                if tried.insert((done.clone(), after.clone())) {
                    next.push((done, after));
                }
            }
        }
    }
    false
}
