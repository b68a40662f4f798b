//! A node's judgement of an origin: one state, changed by five events (L8). docs/protocol.md prints the table.

/// The judgement of one node about one origin. A *retired* origin has no entry, so it is not a state here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its records show the status it stated.
    Admitted,
    /// Its records show `down`, or `left` where an inference applies. Inferences are judged by this liveness counter.
    Silent { liveness_counter: u64 },
    /// There is evidence again, but records that others wrote over its own may be missing. Its first `written` writes,
    /// those it had made by then, are judged as if it were silent; later ones show what it stated. It is admitted after
    /// an exchange with a node that has those writes.
    Returning { liveness_counter: u64, written: u64 },
}

/// An event that may change a standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandingEvent {
    /// Evidence with a higher liveness counter, younger than the admission window.
    Young,
    /// Evidence with a higher liveness counter, older than the admission window.
    Old,
    /// A node to which it is silent, since this liveness counter, sends its records, and none of its writes is held here.
    Outdated { liveness_counter: u64 },
    /// An exchange is complete, with the origin or with a serving node that admits it.
    Exchanged,
    /// There was no evidence for the admission window.
    Quiet,
}

/// A node's knowledge of an origin when an event occurs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its highest liveness counter.
    pub(crate) liveness_counter: u64,
    /// How many writes it had made at that time.
    pub(crate) written: u64,
    /// How many of them the context covers.
    pub(crate) seen: u64,
    /// Its last write that is held. It may be beyond the context: part of a delta that was interrupted.
    pub(crate) held: u64,
}

impl Known {
    pub(crate) fn holds_nothing(self) -> bool {
        self.seen.max(self.held) == 0
    }
}

impl Standing {
    /// Returns the next state.
    ///
    /// Example: node A last received write 7 of B and has had no evidence of it for the admission window, so B is
    /// `Silent { liveness_counter: 40 }`. A ping of B arrives: its liveness counter is 55, and it has made 9 writes. B
    /// becomes `Returning { liveness_counter: 40, written: 9 }`. Write 8 arrives from another node: its record shows
    /// `down`, because write 9 may have replaced it. Write 10 would show at once. The exchange with B is complete and has
    /// brought write 9: B is admitted.
    pub(crate) fn next(self, event: StandingEvent, known: Known) -> Standing {
        let Known { liveness_counter, written, seen, held } = known;
        match (self, event) {
            (Standing::Admitted, StandingEvent::Quiet) => Standing::Silent { liveness_counter },
            // The records are from before the evidence, so they are judged as that node judges them.
            (Standing::Admitted, StandingEvent::Outdated { liveness_counter }) => {
                Standing::Returning { liveness_counter, written }
            }
            (Standing::Admitted, _) => Standing::Admitted,
            (Standing::Silent { liveness_counter }, StandingEvent::Young) => {
                Standing::Returning { liveness_counter, written: written.max(seen).max(held) }
            }
            // It lived longer than this node knew, which voids inferences made before.
            (Standing::Silent { .. }, StandingEvent::Old) => Standing::Silent { liveness_counter },
            (Standing::Silent { .. }, _) => self,
            (Standing::Returning { .. }, StandingEvent::Exchanged) if self.is_complete_with(seen) => Standing::Admitted,
            // Its missing writes may be lost with it; its evidence counts nevertheless.
            (Standing::Returning { .. }, StandingEvent::Quiet) => Standing::Silent { liveness_counter },
            (Standing::Returning { .. }, _) => self,
        }
    }

    pub(crate) fn is_admitted(self) -> bool {
        self == Standing::Admitted
    }

    /// Whether the first `n` writes of a returning origin include those it had announced.
    pub(crate) fn is_complete_with(self, n: u64) -> bool {
        matches!(self, Standing::Returning { written, .. } if n >= written)
    }

    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Standing::Silent { .. })
    }

    /// The liveness counter by which write `n` is judged; `None` if its record shows what the origin stated.
    pub(crate) fn judges(self, n: u64) -> Option<u64> {
        match self {
            Standing::Admitted => None,
            Standing::Returning { written, .. } if n > written => None,
            Standing::Silent { liveness_counter } | Standing::Returning { liveness_counter, .. } => {
                Some(liveness_counter)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md"));
    const STATES: [(&str, Standing); 3] = [
        ("Admitted", Standing::Admitted),
        ("Silent", Standing::Silent { liveness_counter: 40 }),
        ("Returning", Standing::Returning { liveness_counter: 40, written: 9 }),
    ];
    const EVENTS: [(&str, StandingEvent); 5] = [
        ("young evidence", StandingEvent::Young),
        ("old evidence", StandingEvent::Old),
        ("its first records, with old evidence", StandingEvent::Outdated { liveness_counter: 40 }),
        ("exchange complete", StandingEvent::Exchanged),
        ("no evidence for the admission window", StandingEvent::Quiet),
    ];

    fn name(standing: Standing) -> &'static str {
        STATES.iter().find(|(_, state)| std::mem::discriminant(state) == std::mem::discriminant(&standing)).unwrap().0
    }

    /// The consequence of a transition.
    fn action(was: Standing, is: Standing) -> &'static str {
        match (was, is) {
            _ if was == is => "none",
            (Standing::Admitted, _) => "its members show `down`; event `OriginSilent`",
            (_, Standing::Admitted) => "its members show what it stated; event `OriginReturned`",
            (_, Standing::Returning { .. }) => "its new writes show what they state",
            (_, Standing::Silent { .. }) => "inferences with a lower counter are void",
        }
    }

    /// Each state and event, with announced writes missing and with all of them here.
    fn table() -> String {
        let mut text = "| State | Event | All writes here | Next state | Action |\n|---|---|---|---|---|\n".to_owned();
        for (state, was) in STATES {
            for (event_name, event) in EVENTS {
                let next = |seen| was.next(event, Known { liveness_counter: 55, written: 9, seen, held: 7 });
                let row = |complete: &str, is: Standing| {
                    format!("| {state} | {event_name} | {complete} | {} | {} |\n", name(is), action(was, is))
                };
                let seen_from_outside = |is: Standing| (name(is), action(was, is));
                if seen_from_outside(next(7)) == seen_from_outside(next(9)) {
                    text += &row("either", next(7));
                } else {
                    text += &row("no", next(7));
                    text += &row("yes", next(9));
                }
            }
        }
        text
    }

    #[test]
    fn the_documented_table_is_the_code() {
        let table = table();
        assert!(PROTOCOL.contains(&table), "docs/protocol.md must contain this table:\n{table}");
    }

    #[test]
    fn a_returning_origin_shows_only_its_new_writes() {
        let returning = Standing::Returning { liveness_counter: 40, written: 9 };
        assert_eq!([9, 10].map(|n| returning.judges(n)), [Some(40), None]);
        assert_eq!(Standing::Silent { liveness_counter: 3 }.judges(8), Some(3));
        assert_eq!(Standing::Admitted.judges(1), None);
    }
}
