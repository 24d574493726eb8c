//! The Postgres store against a real server, which `FF_PG_TEST_URL` names.

mod away;
mod cancels;
mod clocks;
mod conformance;
mod contract;
mod damaged;
mod database;
mod dropped;
mod engines;
mod flows;
mod limits;
mod migrations;
mod model;
mod quiet;
mod records;
mod restored;
mod schedules;
mod secrets;
mod steps;
mod subscribers;
mod transactional;
mod waits;
mod wall_clock;
