//! x
use plimsoll_sim::*; use plimsoll_queueing::*; use plimsoll_model::Nanos; use plimsoll_control::Exploration; use rand::SeedableRng;
fn main(){
  let a:Vec<String>=std::env::args().collect(); let load:f64=a[1].parse().unwrap(); let m= if a[2]=="rr" {Method::RoundRobin} else {Method::LeastConn}; let mode=match a.get(3).map(|s|s.as_str()) {Some("literal")=>Exploration::Literal,Some("bisect")=>Exploration::Bisect,_=>Exploration::Packed};
  let seed:u64=a.get(4).map(|s|s.parse().unwrap()).unwrap_or(1); let verbose=a.get(5).is_some();
  let pool=paper_pool(11); let spec=WorldSpec::new(pool.clone(),m,load,seed); let rate=spec.rate_rps;
  let n=pool.len(); let mut lam=vec![0.0;n]; let steps=4000; for _ in 0..steps { let d=rate/steps as f64; let mut b=(f64::MAX,0); for i in 0..n { use plimsoll_model::Curve; let c=pool[i].curve(30000.0); if lam[i]+d<0.99*c.capacity(){ let v=(lam[i]+d)*c.latency_at(lam[i]+d)-lam[i]*c.latency_at(lam[i]); if v<b.0 {b=(v,i);} } } lam[b.1]+=d; }
  let st:Vec<Station>=pool.iter().map(|b|Station{cores:b.cores,service_us:30000.0/b.speed}).collect();
  let run=Run{rate_rps:rate,requests:600_000,warm_up:40_000,service:ServiceTime::Exponential};
  let mut r=rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
  let o=simulate(&st,&mut SmoothRoundRobin::new(&lam),&run,&mut r).mean_us/1e3; let c=Central::simulate(&st,&run,&mut r).mean_us/1e3;
  let mut w=World::new(spec); let mut s=w.service_spec(); s.exploration=mode; w.attach(s,None);
  let t=std::time::Instant::now();
  let mut last=Nanos::ZERO; for k in 0..18 { w.run_for(10.0); let (m,p,e)=w.since(last); last=w.now(); let v=w.controller().unwrap().view(w.now()); print!("{}s {:.1}ms/{p:.0} {:?} e{} ; ",(k+1)*10,m,v.phase,e); }
  println!("\n learn cpu {:.2}s",t.elapsed().as_secs_f64());
  let from=w.now(); for _ in 0..30 { let l=w.now(); w.run_for(10.0); let (m,p,_)=w.since(l); print!("{:.0}:{m:.0}/{p:.0} ",w.now().as_secs_f64()); } println!(); let (mean,p99,_)=w.since(from);
  let harm=w.answers.iter().filter(|x| x.sent.0<180_000_000_000 && (x.latency_ms>p99||!x.ok)).count() as f64; let total=w.answers.iter().filter(|x| x.sent.0<180_000_000_000).count() as f64;
  println!("load {load} {:?} {mode:?}: mean {mean:.2} oracle {o:.2} ratio {:.3} central {:.2} x central {:.3}; harm {:.0} of {total}; plans {}",m,mean/o,c,mean/c,harm-0.01*total,w.plans.len());
  if verbose { for (t,r) in &w.records { println!("{:.1} {:?} {:?} {}",t.as_secs_f64(),r.kind,r.backend,r.reason); } let v=w.controller().unwrap().view(w.now()); for (i,(b,c)) in v.backends.iter().zip(&v.curves).enumerate() { let l=rate*b.share; println!("{} w{} share {:.4} opt {:.4} lat {:?} exp {:?} C {:.1}/{:.1} lb{} cores {:.2}/{} l0 {:.1}/{:.1} err {:.3} {} {}",b.backend,b.weight,b.share,lam[i]/rate,b.latency_ms.map(|x|x as i64),b.expected_ms.map(|x|x as i64),c.capacity_rps,pool[i].capacity_rps(30000.),c.capacity_is_lower_bound,c.cores,pool[i].cores,c.l0_ms,30./pool[i].speed,c.capacity_error,c.family,b.reason); let _=l; } }
}
