//! Tests of the checker: histories that are known to be good or bad, and all orders of small ones.

use crate::checker::{Action, Call, Value, is_linearizable, step};
use crate::random::Random;

fn value(text: &str) -> Value {
    (!text.is_empty()).then(|| text.into())
}

fn write(begin: u64, end: u64, new: &str) -> Call {
    Call { begin, end: Some(end), action: Action::Write(value(new)) }
}

fn unknown_write(begin: u64, new: &str) -> Call {
    Call { begin, end: None, action: Action::Write(value(new)) }
}

fn read(begin: u64, end: u64, answer: &str) -> Call {
    Call { begin, end: Some(end), action: Action::Read(value(answer)) }
}

fn swap(begin: u64, end: u64, expected: &str, new: &str, found: &str) -> Call {
    let (expected, new, found) = (value(expected), value(new), Some(value(found)));
    Call { begin, end: Some(end), action: Action::CompareAndSet { expected, new, found } }
}

fn unknown_swap(begin: u64, expected: &str, new: &str) -> Call {
    let (expected, new) = (value(expected), value(new));
    Call { begin, end: None, action: Action::CompareAndSet { expected, new, found: None } }
}

#[test]
fn good_histories_pass() {
    let good: [&[Call]; 9] = [
        &[],
        &[read(1, 2, ""), write(3, 4, "a"), read(5, 6, "a"), write(7, 8, ""), read(9, 10, "")],
        // During a write both values may be read.
        &[write(1, 2, "a"), write(3, 10, "b"), read(4, 5, "a"), read(6, 7, "b")],
        // Two writes at the same time have any order, and it shows only later.
        &[write(1, 10, "a"), write(2, 9, "b"), read(11, 12, "a")],
        &[write(1, 10, "a"), write(2, 9, "b"), read(11, 12, "b")],
        &[swap(1, 10, "", "a", ""), swap(2, 9, "", "b", "a"), read(11, 12, "a")],
        // A write without an answer was never done, or much later than its client gave up.
        &[unknown_write(1, "a"), read(2, 3, ""), read(4, 5, "")],
        &[unknown_write(1, "a"), write(2, 3, "b"), read(4, 5, "b"), read(6, 7, "a")],
        &[write(1, 2, "a"), unknown_swap(3, "a", "b"), read(4, 5, "a"), read(6, 7, "b")],
    ];
    for history in good {
        assert!(is_linearizable(history), "{history:#?}");
    }
}

#[test]
fn bad_histories_fail() {
    let bad: [&[Call]; 10] = [
        // A lost write, an old value, a value that nobody wrote.
        &[write(1, 2, "a"), read(3, 4, "")],
        &[write(1, 2, "a"), write(3, 4, "b"), read(5, 6, "a")],
        &[write(1, 2, "a"), read(3, 4, "b")],
        // Back to the old value during a write.
        &[write(1, 2, "a"), write(3, 10, "b"), read(4, 5, "b"), read(6, 7, "a")],
        // Two swaps of one value.
        &[swap(1, 10, "", "a", ""), swap(2, 9, "", "b", "")],
        // A swap that should have happened.
        &[write(1, 2, "a"), swap(3, 4, "a", "b", "a"), read(5, 6, "a")],
        // A write without an answer is done once, not twice.
        &[unknown_write(1, "a"), read(2, 3, "a"), write(4, 5, "b"), read(6, 7, "a")],
        &[unknown_swap(1, "", "a"), read(2, 3, "a"), write(4, 5, ""), read(6, 7, "a")],
        // It is not done before it began.
        &[read(1, 2, "a"), unknown_write(3, "a")],
        // A swap without an answer needs its expected value.
        &[write(1, 2, "a"), unknown_swap(3, "c", "b"), read(4, 5, "b")],
    ];
    for history in bad {
        assert!(!is_linearizable(history), "{history:#?}");
    }
}

/// Tries all orders, without any of the checker's shortcuts.
fn has_order(open: &mut Vec<Call>, value: &Value) -> bool {
    if open.iter().all(|call| call.end.is_none()) {
        return true;
    }
    (0..open.len()).any(|at| {
        let call = open.remove(at);
        let comes_too_late =
            open.iter().any(|other| other.end.is_some_and(|end| end <= call.begin));
        let after = step(value, &call.action);
        let found = !comes_too_late && after.is_some_and(|after| has_order(open, &after));
        open.insert(at, call);
        found
    })
}

#[test]
fn the_checker_agrees_with_all_orders() {
    let mut random = Random(7);
    let mut answers = [0; 2];
    for _ in 0..4000 {
        let any = |random: &mut Random| value(["", "a", "b"][random.below(3) as usize]);
        let history: Vec<Call> = (0..2 + random.below(4))
            .map(|_| {
                let begin = random.below(8) * 10 + random.below(10);
                let end = (!random.one_in(4)).then(|| begin + 1 + random.below(30));
                let action = match random.below(3) {
                    0 => Action::Write(any(&mut random)),
                    1 => Action::Read(any(&mut random)),
                    _ => {
                        let (expected, new) = (any(&mut random), any(&mut random));
                        let found = end.map(|_| any(&mut random));
                        Action::CompareAndSet { expected, new, found }
                    }
                };
                Call { begin, end, action }
            })
            // A read without an answer says nothing.
            .filter(|call| call.end.is_some() || !matches!(call.action, Action::Read(_)))
            .collect();
        let expected = has_order(&mut history.clone(), &None);
        assert_eq!(is_linearizable(&history), expected, "{history:#?}");
        answers[usize::from(expected)] += 1;
    }
    assert!(answers.iter().all(|count| *count > 500), "bad and good: {answers:?}");
}
