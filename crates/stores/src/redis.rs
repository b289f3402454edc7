//! Counters in Redis or Valkey, shared by many processes.

#![allow(dead_code, reason = "the parts of a store")]

mod courier;
mod failure;
mod link;
mod parcel;
mod settings;

pub use courier::{CourierFigures, Histogram};
pub use link::LinkState;
pub use settings::{
    Login, NameCheck, Password, RedisAddress, RedisServers, RedisSettings, RedisSettingsError,
    RedisTls, Secret,
};
