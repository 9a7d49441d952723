//! From rows of the table to text: a family for each row that has something to tell.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::PageFacts;
use super::table::{Labels, MetricRow, MetricValue, ROWS};
use crate::api::LatencyClasses;

/// Nothing here is told with examples.
const NO_EXAMPLE: Option<&Exemplar<NoLabelSet, f64>> = None;

#[derive(Debug)]
pub(super) struct PageCollector(pub PageFacts);

impl Collector for PageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        ROWS.iter().try_for_each(|row| encode_row(row, &self.0, &mut encoder))
    }
}

fn encode_row(row: &MetricRow, facts: &PageFacts, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut is_empty = true;
    row.samples(facts, &mut |_, _| is_empty = false);
    if is_empty {
        return Ok(());
    }
    let unit = row.unit.map(|unit| unit.for_library());
    let mut metric = encoder.encode_descriptor(row.stem, row.help, unit.as_ref(), row.kind())?;
    let mut done = Ok(());
    row.samples(facts, &mut |labels, value| {
        if done.is_ok() {
            done = encode_sample(&mut metric, row.kind(), labels, value);
        }
    });
    done
}

fn encode_sample(metric: &mut MetricEncoder, kind: MetricType, labels: Labels, value: MetricValue) -> fmt::Result {
    if let MetricType::Info = kind {
        return metric.encode_info(&labels);
    }
    match labels {
        // As a family without labels it would have empty braces.
        [] => encode_value(metric, kind, value),
        _ => encode_value(&mut metric.encode_family(&labels)?, kind, value),
    }
}

fn encode_value(metric: &mut MetricEncoder, kind: MetricType, value: MetricValue) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, MetricValue::Whole(sum)) => metric.encode_counter(&sum, NO_EXAMPLE),
        (MetricType::Counter, MetricValue::Real(sum)) => metric.encode_counter(&sum, NO_EXAMPLE),
        (_, MetricValue::Whole(value)) => metric.encode_gauge(&value),
        (_, MetricValue::Real(value)) => metric.encode_gauge(&value),
        (_, MetricValue::Latency(classes)) => encode_latency(metric, classes),
    }
}

fn encode_latency(metric: &mut MetricEncoder, classes: &LatencyClasses) -> fmt::Result {
    let bounds = classes.bounds_us.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    // They may be a peer's word, and the library adds them up: a sum that no number holds ends at the largest one.
    let mut count = 0_u64;
    let counts = classes.counts.iter().map(|more| {
        let more = (*more).min(u64::MAX - count);
        count += more;
        more
    });
    let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
    metric.encode_histogram::<NoLabelSet>(classes.sum_us as f64 / 1e6, count, &buckets, None)
}
