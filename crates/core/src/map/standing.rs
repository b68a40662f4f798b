//! How a node judges an origin: one state, changed by five signs (rules L2 and L3; the table is in docs/protocol.md).

/// The judgement of one node about one origin. An origin that is *retired* has no entry any more, so it is no state here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its records show the status it stated.
    Admitted,
    /// Its records show `down`, or `left` where an inference applies. Inferences are judged by this liveness counter.
    Silent { life: u64 },
    /// It gives signs of life again, but not all its writes are here yet. Records up to write `above` are judged as if it
    /// were silent, later ones show what it stated. It is admitted once its first `written` writes have been received.
    Returning { life: u64, above: u64, written: u64 },
}

/// What can happen to a standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Evidence with a higher liveness counter, younger than the admission window.
    Young,
    /// Evidence with a higher liveness counter, older than the admission window.
    Old,
    /// Writes were received.
    Received,
    /// There was no evidence for the admission window.
    Quiet,
}

/// What a node knows of an origin when a sign arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its highest liveness counter.
    pub(crate) life: u64,
    /// How many writes it had made at that time.
    pub(crate) written: u64,
    /// How many of them the context covers.
    pub(crate) seen: u64,
    /// Its last write that is held. It may be beyond the context: part of a delta that was cut off.
    pub(crate) held: u64,
}

impl Standing {
    /// The next state.
    ///
    /// Example: node A last received write 7 of B and has not heard of it for the admission window, so B is
    /// `Silent { life: 40 }`. A ping of B arrives: its liveness counter is 55, and it has made 9 writes. B becomes
    /// `Returning { life: 40, above: 7, written: 9 }`. Write 8 arrives and shows at once; the older records still show
    /// `down`. Write 9 arrives, and B is admitted.
    pub(crate) fn next(self, sign: Sign, known: Known) -> Standing {
        let Known { life, written, seen, held } = known;
        match (self, sign) {
            (Standing::Admitted, Sign::Quiet) => Standing::Silent { life },
            (Standing::Admitted, _) => Standing::Admitted,
            (Standing::Silent { .. }, Sign::Young) if seen >= written => Standing::Admitted,
            (Standing::Silent { life }, Sign::Young) => Standing::Returning { life, above: seen.max(held), written },
            // It lived longer than this node knew, which voids inferences made before.
            (Standing::Silent { .. }, Sign::Old) => Standing::Silent { life },
            (Standing::Silent { .. }, _) => self,
            (Standing::Returning { written, .. }, Sign::Received) if seen >= written => Standing::Admitted,
            // Its news may be lost with it; the sign of life counts all the same.
            (Standing::Returning { .. }, Sign::Quiet) => Standing::Silent { life },
            (Standing::Returning { .. }, _) => self,
        }
    }

    pub(crate) fn is_admitted(self) -> bool {
        self == Standing::Admitted
    }

    /// The liveness counter by which write `n` is judged; `None` if its record shows what the origin stated.
    pub(crate) fn judges(self, n: u64) -> Option<u64> {
        match self {
            Standing::Admitted => None,
            Standing::Returning { above, .. } if n > above => None,
            Standing::Silent { life } | Standing::Returning { life, .. } => Some(life),
        }
    }
}
