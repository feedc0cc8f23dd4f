//! Plays the session that each example opens with, and every line of what `payments` promises.

mod payments;
mod programs;
