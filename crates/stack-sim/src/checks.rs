//! Checks of a completed run.

use crate::record::{AcknowledgedWrite, Record};

/// All checks by name; the first that fails is the finding.
pub(crate) fn check(record: &Record, changes: u64) -> Result<Vec<(&'static str, u64)>, String> {
    let mut done = Vec::new();
    let operations = record.history.len() as u64;
    record.unresolved.check().map_err(|violation| format!("linearizable, unknowns open: {violation}"))?;
    done.push(("linearizable, unknowns open", operations));
    record.history.check().map_err(|violation| format!("linearizable, unknowns resolved: {violation}"))?;
    done.push(("linearizable, unknowns resolved", operations));
    let coordinated = record.coordination.len() as u64;
    record.coordination.check().map_err(|violation| format!("linearizable transactions and locks: {violation}"))?;
    done.push(("linearizable transactions and locks", coordinated));
    places(&record.writes).map_err(|what| format!("one place for each write: {what}"))?;
    done.push(("one place for each write", record.writes.len() as u64));
    in_order(&record.writes).map_err(|what| format!("log order follows real time: {what}"))?;
    done.push(("log order follows real time", record.writes.len() as u64));
    let transactions = record.transactions;
    counted(&record.writes, record.outcome_unknown, changes.saturating_sub(transactions))
        .map_err(|what| format!("each write exactly once: {what}"))?;
    done.push(("each write exactly once", record.writes.len() as u64 + transactions));
    Ok(done)
}

/// No two writes have the same index, or the same revision if both changed something.
fn places(writes: &[AcknowledgedWrite]) -> Result<(), String> {
    let mut indexes: Vec<u64> = writes.iter().map(|write| write.index).collect();
    let mut revisions: Vec<u64> = writes.iter().filter(|write| write.changed).map(|write| write.revision).collect();
    for (what, found) in [("index", &mut indexes), ("revision", &mut revisions)] {
        found.sort_unstable();
        if let Some(pair) = found.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two of them have {what} {}", pair[0]));
        }
    }
    Ok(())
}

/// A write that was answered before another one started precedes it in the log.
fn in_order(writes: &[AcknowledgedWrite]) -> Result<(), String> {
    let mut by_answer: Vec<&AcknowledgedWrite> = writes.iter().collect();
    by_answer.sort_unstable_by_key(|write| write.answered);
    let mut by_call: Vec<&AcknowledgedWrite> = writes.iter().collect();
    by_call.sort_unstable_by_key(|write| write.called);
    let (mut answered, mut highest) = (by_answer.into_iter().peekable(), 0);
    for write in by_call {
        while let Some(before) = answered.next_if(|before| before.answered < write.called) {
            highest = highest.max(before.index);
        }
        if write.index <= highest {
            return Err(format!("index {} began after index {highest} was answered", write.index));
        }
    }
    Ok(())
}

/// Keys changed once for each write that changed something, with a tolerance for writes of unknown outcome.
fn counted(writes: &[AcknowledgedWrite], outcome_unknown: u64, changes: u64) -> Result<(), String> {
    let known = writes.iter().filter(|write| write.changed).count() as u64;
    if (known..=known + outcome_unknown).contains(&changes) {
        return Ok(());
    }
    Err(format!("{known} writes took effect and {outcome_unknown} may have, but keys changed {changes} times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(index: u64, called: u64, answered: u64) -> AcknowledgedWrite {
        AcknowledgedWrite { index, revision: index, changed: true, called, answered }
    }

    #[test]
    fn a_log_against_time_is_noticed() {
        assert_eq!(in_order(&[write(1, 0, 5), write(2, 5, 9)]), Ok(()));
        assert_eq!(in_order(&[write(2, 0, 5), write(1, 5, 9)]), Ok(()), "they overlap");
        assert!(in_order(&[write(2, 0, 5), write(1, 6, 9)]).is_err());
    }

    #[test]
    fn a_place_that_is_taken_twice_is_noticed() {
        assert_eq!(places(&[write(1, 0, 1), write(2, 0, 1)]), Ok(()));
        assert!(places(&[write(1, 0, 1), write(1, 0, 1)]).is_err());
    }

    #[test]
    fn a_write_too_many_or_too_few_is_noticed() {
        let writes = [write(1, 0, 1), write(2, 0, 1)];
        assert_eq!(counted(&writes, 0, 2), Ok(()));
        assert_eq!(counted(&writes, 1, 3), Ok(()));
        assert!(counted(&writes, 0, 3).is_err(), "one was executed twice");
        assert!(counted(&writes, 0, 1).is_err(), "one was lost");
    }
}
