//! The macros that declare a crate's deliberate bugs and place them.

/// Declares the deliberate bugs (mutants) of a crate and the type that selects the active one.
///
/// The calling crate has a feature `mutants`, which only tests and simulators turn on. Without it `Mutation` is empty,
/// every check is the constant `false`, and no mutant is part of the program.
#[macro_export]
macro_rules! mutants {
    ($($name:ident: $rule:literal, $meaning:literal;)*) => {
        /// One disabled rule, or one ordinary programming error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant { $(#[doc = $meaning] $name,)* }

        impl Mutant {
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Mutant::$name => stringify!($name),)* }
            }

            /// The rule of the protocol that is broken.
            pub fn rule(self) -> &'static str {
                match self { $(Mutant::$name => $rule,)* }
            }

            pub fn meaning(self) -> &'static str {
                match self { $(Mutant::$name => $meaning,)* }
            }
        }

        /// The active mutant, if any.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Mutation(#[cfg(feature = "mutants")] Option<Mutant>);

        impl Mutation {
            /// No mutant: the correct program.
            pub const fn none() -> Self {
                Mutation(
                    #[cfg(feature = "mutants")]
                    None,
                )
            }

            #[cfg(feature = "mutants")]
            pub const fn of(mutant: Mutant) -> Self {
                Mutation(Some(mutant))
            }

            #[cfg(feature = "mutants")]
            pub(crate) fn is(self, mutant: Mutant) -> bool {
                self.0 == Some(mutant)
            }

            #[cfg(not(feature = "mutants"))]
            #[inline(always)]
            pub(crate) fn is(self, _: Mutant) -> bool {
                false
            }
        }
    };
}

/// The seam of a function where a mutant acts: `seam!(self, Name => expression)` runs the expression if the mutant in
/// `self.mutation` is `Name`. A function without such a field takes a `Mutation`: `seam!(in mutation, Name => …)`.
///
/// Seams stand at the top of a function, or on a line of their own, so that the rule reads without them. The calling
/// crate declares its mutants in its module `mutant`.
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the mutants are those of the calling crate")]
macro_rules! seam {
    (in $mutation:expr, $name:ident => $instead:expr) => {
        if $mutation.is(crate::mutant::Mutant::$name) {
            $instead
        }
    };
    ($self:ident, $name:ident => $instead:expr) => {
        if $self.mutation.is(crate::mutant::Mutant::$name) {
            $instead
        }
    };
}
