//! `tidegate serve` as its users meet it: the real binary, on free ports.

mod process;

mod compat;
mod operating;
mod reloading;
mod serving;
mod starting;
