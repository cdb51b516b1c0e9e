//! Axes with the positions and names of their ticks.

/// What is measured along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisUnit {
    Count,
    Bytes,
    BytesPerSecond,
    /// Nanoseconds.
    Time,
    Percent,
}

impl AxisUnit {
    /// The quantity on an axis.
    pub fn word(self) -> &'static str {
        match self {
            Self::Count => "operations",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes a second",
            Self::Time => "time",
            Self::Percent => "share",
        }
    }

    /// The largest unit of which `most` has at least one, and its name.
    fn scale(self, most: f64) -> (f64, &'static str) {
        let (units, suffixes): (f64, &[&str]) = match self {
            Self::Count => return (1.0, ""),
            Self::Percent => return (1.0, " %"),
            Self::Bytes => (1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]),
            Self::BytesPerSecond => (1024.0, &[" B/s", " KiB/s", " MiB/s", " GiB/s", " TiB/s", " PiB/s", " EiB/s"]),
            Self::Time => (1000.0, &[" ns", " us", " ms", " s"]),
        };
        let mut scale = (1.0, suffixes.first().copied().unwrap_or_default());
        for suffix in suffixes.iter().skip(1) {
            if most < scale.0 * units {
                break;
            }
            scale = (scale.0 * units, suffix);
        }
        scale
    }
}

/// An axis from 0 to a greatest value, with ticks at round values.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    most: f64,
    step: f64,
    scale: f64,
    suffix: &'static str,
}

impl Axis {
    /// An axis with about `ticks` ticks, which ends at the first tick that is not below `greatest`.
    pub fn new(unit: AxisUnit, greatest: f64, ticks: u32) -> Self {
        let axis = Self::ending_at(unit, greatest, ticks);
        Self { most: (axis.most / axis.step - 1e-9).ceil().max(1.0) * axis.step, ..axis }
    }

    /// An axis that ends at `greatest`.
    pub fn ending_at(unit: AxisUnit, greatest: f64, ticks: u32) -> Self {
        let most = if greatest > 0.0 { greatest } else { 1.0 };
        let (scale, suffix) = unit.scale(most);
        let step = round_up(most / scale / f64::from(ticks.max(1)));
        let whole = matches!(unit, AxisUnit::Count) || scale <= 1.0;
        Self { most, step: if whole { step.max(1.0) } else { step } * scale, scale, suffix }
    }

    /// The position of a value: 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        (value / self.most).clamp(0.0, 1.0)
    }

    /// Each tick's place and name.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let count = (self.most / self.step + 1e-9).floor() as u32;
        let step = self.step / self.scale;
        let decimals = if step >= 1.0 { 0 } else { (-step.log10() - 1e-9).ceil() as usize };
        (0..=count).map(move |tick| {
            let value = f64::from(tick) * self.step;
            (self.place(value), format!("{:.decimals$}{}", value / self.scale, self.suffix))
        })
    }
}

/// The next of 1, 2, 5, 10, 20, 50, ... and of their tenths.
fn round_up(value: f64) -> f64 {
    let power = 10.0_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|times| times * power)
        .find(|round| *round >= value * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(axis: Axis) -> Vec<String> {
        axis.ticks().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round_and_have_units() {
        assert_eq!(
            names(Axis::new(AxisUnit::Bytes, 1500.0 * 1024.0 * 1024.0, 4)),
            ["0.0 GiB", "0.5 GiB", "1.0 GiB", "1.5 GiB"]
        );
        assert_eq!(names(Axis::new(AxisUnit::Count, 3.0, 4)), ["0", "1", "2", "3"]);
        assert_eq!(names(Axis::new(AxisUnit::Time, 37.7e6, 4)), ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms"]);
        assert_eq!(names(Axis::new(AxisUnit::Percent, 100.0, 5)), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(names(Axis::ending_at(AxisUnit::Time, 2.3e9, 4)), ["0 s", "1 s", "2 s"]);
        assert_eq!(names(Axis::new(AxisUnit::Count, 0.0, 4)), ["0", "1"]);
    }

    proptest! {
        #[test]
        fn nothing_lies_beyond_an_axis_and_ticks_are_few(greatest in 0.0_f64..1e19) {
            for unit in [AxisUnit::Count, AxisUnit::Bytes, AxisUnit::Time, AxisUnit::BytesPerSecond] {
                let axis = Axis::new(unit, greatest, 4);
                prop_assert!(axis.most >= greatest * (1.0 - 1e-6));
                let count = axis.ticks().count();
                prop_assert!((2..=6).contains(&count), "{} ticks", count);
            }
        }
    }
}
