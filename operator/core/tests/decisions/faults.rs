//! Random faults in the small world: crashes, cut links, lost and late commands, killed and overlapping operators, changes
//! of the spec, lost volumes. Safety is checked after every tick, each plan by the invariant checker; when the faults stop,
//! everything has to settle. A failure names its seed: pin it below.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::world::World;
use crate::world::random::Random;

/// Seeds that once failed. 1050: members without any transaction did not follow a winner with its first one.
const PINNED: &[u64] = &[1050];
/// The same of short runs.
const PINNED_SHORT: &[u64] = &[];

/// Faults of a long run, and of a short one.
const LONG: u32 = 25;
const SHORT: u32 = 6;

fn run(seed: u64) {
    let mut world = at_rest(seed, replicas(seed));
    faults(&mut world, seed, LONG);
}

fn replicas(seed: u64) -> i32 {
    if seed % 4 == 3 { 5 } else { 3 }
}

/// A cluster in which everything is in place.
fn at_rest(seed: u64, replicas: i32) -> World {
    let mut world = World::new(seed, replicas);
    world.say(format!("seed {seed}"));
    world.settle(Duration::from_mins(1));
    world
}

fn faults(world: &mut World, seed: u64, count: u32) {
    let mut random = Random::new(seed ^ 0xFA17);
    world.settings.stale = random.below(60);
    world.settings.lose = random.below(15);
    world.settings.late = random.below(15);
    world.settings.pace = 30 + random.below(71);
    if random.chance(50) {
        world.add_operator();
    }
    let mut volumes_lost = 0;
    // Randomness of its own, so that a pinned seed stays what it was.
    let mut people = Random::new(seed ^ 0x9E09);
    let mut appliers = Random::new(seed ^ 0xA991);
    for _ in 0..count {
        fault(world, &mut random, &mut volumes_lost);
        if seed % 3 == 2 && appliers.chance(30) {
            break_applier(world, &mut appliers, &mut volumes_lost);
        }
        if seed % 3 == 1 && people.chance(30) {
            ask(world, &mut people);
        }
        world.run(Duration::from_millis(random.below(4000)));
    }
    calm(world);
}

fn fault(world: &mut World, random: &mut Random, volumes_lost: &mut u32) {
    let count = u64::try_from(world.nodes.len()).unwrap();
    let ordinal = usize::try_from(random.below(count)).unwrap();
    let operators = u64::try_from(world.operators.len()).unwrap();
    let operator = usize::try_from(random.below(operators)).unwrap();
    match random.below(12) {
        0 | 1 => world.crash(ordinal, Duration::from_millis(random.below(8000))),
        2 | 3 => world.kill_mysqld(ordinal),
        4 => world.cut_from_operators(ordinal),
        5 => {
            let name = world.nodes[ordinal].name.clone();
            world.cut.insert((operator, name));
        }
        6 => world.cut_from_instances(ordinal),
        7 | 8 => world.heal_network(),
        9 => world.restart_operator(operator),
        10 => world.delete_pod(ordinal, Duration::from_millis(random.below(10_000))),
        // A promise of k acknowledgements is one of surviving k losses, no more.
        11 if *volumes_lost < world.rules().map_or(0, |rules| rules.acks_required) => {
            *volumes_lost += 1;
            world.lose_volume(ordinal);
        }
        _ => world.operators[operator].blind = !world.operators[operator].blind,
    }
}

/// What one instance alone received and cannot apply is as good as lost with it, once the primary is lost, too.
fn break_applier(world: &mut World, random: &mut Random, lost: &mut u32) {
    let ordinal = usize::try_from(random.below(u64::try_from(world.nodes.len()).unwrap())).unwrap();
    if *lost < world.rules().map_or(0, |rules| rules.acks_required) {
        *lost += 1;
        world.break_applier(ordinal);
    }
}

/// A person asks for something, whatever the state is.
fn ask(world: &mut World, people: &mut Random) {
    let ordinal = usize::try_from(people.below(u64::try_from(world.nodes.len()).unwrap())).unwrap();
    let verb = *people
        .pick(&["promote", "promote", "fence", "unfence", "rebuild"])
        .unwrap();
    world.ask(verb, ordinal, false);
}

/// Everybody who is kept out is let in, also who is about to be.
fn let_in(world: &mut World) {
    if let Some(id) = world.asked() {
        world.until("answered", Duration::from_mins(5), |world| {
            world.answered(&id).is_some()
        });
    }
    while let Some(fence) = world.kubernetes.status.fences.first().cloned() {
        let ordinal = world
            .nodes
            .iter()
            .position(|node| node.name.0 == fence.instance)
            .unwrap();
        let id = world.ask("unfence", ordinal, false);
        world.until("unfenced", Duration::from_mins(2), |world| {
            world.answered(&id).is_some()
        });
    }
}

/// No more faults: one operator, a whole network, and everything comes to rest.
fn calm(world: &mut World) {
    world.say("calm");
    world.heal_network();
    world.settings.stale = 0;
    world.settings.lose = 0;
    world.settings.late = 0;
    world.settings.pace = 100;
    for operator in &mut world.operators {
        operator.blind = true;
        operator.pending.clear();
    }
    world.operators[0].blind = false;
    let_in(world);
    world.settle(Duration::from_mins(10));
    let primary = world.open_primary().unwrap();
    let has = world.node(primary).volume.as_ref().unwrap().offers();
    assert!(has.contains(&world.acked));
}

/// Says which seed failed.
fn guarded(variable: &str, seed: u64, run: impl FnOnce() + std::panic::UnwindSafe) {
    if let Err(panic) = std::panic::catch_unwind(run) {
        eprintln!("{variable}={seed}:1 failed");
        std::panic::resume_unwind(panic);
    }
}

/// The first seed and how many: `MAINSTAY_SEEDS=1000:500` for more long runs, `MAINSTAY_SHORT_SEEDS` for short ones.
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for from outside")]
fn seeds(variable: &str, usual: u64) -> std::ops::Range<u64> {
    let asked = std::env::var(variable).ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(':'));
    let (first, count) = asked.map_or((0, usual), |(first, count)| {
        (first.parse().unwrap(), count.parse().unwrap())
    });
    first..first + count
}

#[test]
fn random_faults_lose_nothing_and_heal() {
    for seed in PINNED.iter().copied().chain(seeds("MAINSTAY_SEEDS", 25)) {
        guarded("MAINSTAY_SEEDS", seed, || run(seed));
    }
}

/// Many short runs from clusters at rest, on all processors: each a handful of faults and the peace after them.
#[test]
fn a_few_faults_lose_nothing_and_heal_in_ten_thousand_variants() {
    let seeds: Vec<u64> = PINNED_SHORT
        .iter()
        .copied()
        .chain(seeds("MAINSTAY_SHORT_SEEDS", 10_000))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let bases = [at_rest(1, 3), at_rest(2, 5)];
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let mut world = bases[usize::from(replicas(seed) == 5)].clone();
            world.random = Random::new(seed);
            guarded(
                "MAINSTAY_SHORT_SEEDS",
                seed,
                AssertUnwindSafe(|| faults(&mut world, seed, SHORT)),
            );
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}
