//! What was measured, and what it was to be.

use std::fmt;

/// Who was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Dunnage,
    Conmon,
}

impl Who {
    /// In turn.
    pub(crate) const BOTH: [Self; 2] = [Self::Conmon, Self::Dunnage];
}

/// The same thing measured several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

impl From<f64> for Samples {
    fn from(sample: f64) -> Self {
        Self(vec![sample])
    }
}

/// Both monitors' samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) dunnage: Samples,
    pub(crate) conmon: Samples,
}

impl Pair {
    pub(crate) fn push(&mut self, who: Who, sample: f64) {
        match who {
            Who::Dunnage => self.dunnage.push(sample),
            Who::Conmon => self.conmon.push(sample),
        }
    }

    /// The figure that these are.
    pub(crate) fn figure(self, what: &str, unit: &'static str, goal: Goal) -> Figure {
        let beside = Some(("conmon", self.conmon));
        Figure { what: what.to_owned(), unit, dunnage: self.dunnage, beside, goal }
    }
}

/// What a figure is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// At most so many times what it is held against.
    AtMostTimes(f64),
    /// At least so many times what it is held against.
    AtLeastTimes(f64),
    /// At most this.
    AtMost(f64),
    /// It is shown, no more.
    Shown,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMostTimes(ratio) => write!(f, "<= {ratio} x"),
            Self::AtLeastTimes(ratio) => write!(f, ">= {ratio} x"),
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::Shown => Ok(()),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) dunnage: Samples,
    /// What it is held against.
    pub(crate) beside: Option<(&'static str, Samples)>,
    pub(crate) goal: Goal,
}

impl Figure {
    /// A figure that stands alone.
    pub(crate) fn alone(what: &str, unit: &'static str, samples: Samples, goal: Goal) -> Self {
        Self { what: what.to_owned(), unit, dunnage: samples, beside: None, goal }
    }

    /// Held against something else than conmon.
    pub(crate) fn beside(
        what: &str,
        unit: &'static str,
        dunnage: Samples,
        beside: (&'static str, Samples),
        goal: Goal,
    ) -> Self {
        Self { what: what.to_owned(), unit, dunnage, beside: Some(beside), goal }
    }

    /// How many times what it is held against.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (_, beside) = self.beside.as_ref()?;
        let ratio = self.dunnage.median() / beside.median();
        ratio.is_finite().then_some(ratio)
    }

    /// Whether the goal is met, if there is one.
    pub(crate) fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::AtMostTimes(most) => self.ratio().map(|ratio| ratio <= most),
            Goal::AtLeastTimes(least) => self.ratio().map(|ratio| ratio >= least),
            Goal::AtMost(most) => Some(self.dunnage.median() <= most),
            Goal::Shown => None,
        }
    }
}
