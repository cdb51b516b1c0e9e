//! From events to anomalies to a verdict: pure functions over the model's types, without a clock, a kernel or a file.
//!
//! A [`RuleState`] puts the events that its rule counts into a [`Window`]. When the window closes, the rule (a [`Detector`]) says whether it was
//! anomalous. Anomalous windows close to each other form one [`Episode`]. [`verdict()`] says where the episode's time was lost, and [`Top`] which
//! operations, mounts, processes and files lost it.

pub mod baseline;
mod below;
mod changed;
pub mod connection;
mod detector;
pub mod ends;
mod episode;
pub mod error;
pub mod expression;
pub mod fleet;
pub mod latency;
pub mod long_term;
mod meanwhile;
mod normal;
mod order;
pub mod rule;
mod sizes;
pub mod stall;
pub mod throughput;
mod top;
mod tree;
mod turns;
mod units;
mod verdict;
mod window;

pub use below::{Below, Child, KEPT_BELOW, OperationsBelow};
pub use changed::changed;
pub use detector::Detector;
pub use episode::{Episode, EpisodeChange, RuleState};
pub use meanwhile::{FinishedOperations, Ledger, Meanwhile};
pub use top::{RANKS, Ranked, Top, TopFile, TopThread};
pub use tree::{OperationTree, TreeAssembler};
pub use units::{counted, span};
pub use verdict::{has_telling_text, is_of_connections, judge, judge_delayed, verdict};
pub use window::{KEPT, Total, Window};
