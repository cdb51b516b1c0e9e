//! The size of both drawings, and their logarithmic scale of latencies.

/// Size of a drawing, in its own units, which a browser scales.
pub const WIDTH: f64 = 960.0;
pub const HEIGHT: f64 = 320.0;
/// Room for the axes' labels.
pub const LEFT: f64 = 76.0;
pub const RIGHT: f64 = 14.0;
pub const TOP: f64 = 14.0;
pub const BOTTOM: f64 = 40.0;

/// Formats a coordinate with one decimal, which suffices for a browser.
pub fn at(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}

/// A logarithmic scale, from one duration to another, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Latencies {
    low: f64,
    high: f64,
}

impl Latencies {
    /// A scale from `least` to `most`, nanoseconds. It spans at least a factor of ten, and begins at a microsecond or
    /// above.
    pub fn new(least: u64, most: u64) -> Self {
        let low = (least.max(1_000) as f64).log10();
        Self { low, high: (most.max(1) as f64).log10().max(low + 1.0) }
    }

    /// The position of a duration on the scale, 0 to 1.
    pub fn part(self, nanos: u64) -> f64 {
        (((nanos.max(1) as f64).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The powers of ten on the scale; on a short scale also three times each.
    pub fn ticks(self) -> Vec<u64> {
        let powers = (self.low.floor() as u32..=self.high.ceil() as u32).map(|power| 10_u64.saturating_pow(power));
        let steps: &[u64] = if self.high - self.low < 3.0 { &[1, 3] } else { &[1] };
        let (low, high) = (10_f64.powf(self.low) * 0.999, 10_f64.powf(self.high) * 1.001);
        let ticks = powers.flat_map(|power| steps.iter().map(move |step| power.saturating_mul(*step)));
        ticks.filter(|tick| (low..=high).contains(&(*tick as f64))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_ticks_and_holds_everything() {
        let scale = Latencies::new(90_000, 300_000_000);
        assert_eq!(scale.ticks(), [100_000, 1_000_000, 10_000_000, 100_000_000]);
        assert_eq!((scale.part(0), scale.part(u64::MAX)), (0.0, 1.0));
        assert_eq!(Latencies::new(1_000_000, 1_000_000).ticks(), [1_000_000, 3_000_000, 10_000_000]);
        assert!(Latencies::new(0, u64::MAX).ticks().len() < 20);
    }
}
