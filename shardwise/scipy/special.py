"""Special functions under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.nn.normalize import logsumexp as logsumexp
    from shardwise._src.special.beta_functions import beta as beta
    from shardwise._src.special.beta_functions import betainc as betainc
    from shardwise._src.special.beta_functions import betaln as betaln
    from shardwise._src.special.beta_functions import comb as comb
    from shardwise._src.special.beta_functions import poch as poch
    from shardwise._src.special.error_functions import dawsn as dawsn
    from shardwise._src.special.error_functions import erf as erf
    from shardwise._src.special.error_functions import erfc as erfc
    from shardwise._src.special.error_functions import erfcinv as erfcinv
    from shardwise._src.special.error_functions import erfcx as erfcx
    from shardwise._src.special.error_functions import erfinv as erfinv
    from shardwise._src.special.error_functions import fresnel as fresnel
    from shardwise._src.special.error_functions import log_ndtr as log_ndtr
    from shardwise._src.special.error_functions import ndtr as ndtr
    from shardwise._src.special.error_functions import ndtri as ndtri
    from shardwise._src.special.error_functions import owens_t as owens_t
    from shardwise._src.special.error_functions import wofz as wofz
    from shardwise._src.special.gamma_functions import bernoulli as bernoulli
    from shardwise._src.special.gamma_functions import digamma as digamma
    from shardwise._src.special.gamma_functions import factorial as factorial
    from shardwise._src.special.gamma_functions import gamma as gamma
    from shardwise._src.special.gamma_functions import gammainc as gammainc
    from shardwise._src.special.gamma_functions import gammaincc as gammaincc
    from shardwise._src.special.gamma_functions import gammaln as gammaln
    from shardwise._src.special.gamma_functions import gammasgn as gammasgn
    from shardwise._src.special.gamma_functions import loggamma as loggamma
    from shardwise._src.special.gamma_functions import multigammaln as multigammaln
    from shardwise._src.special.gamma_functions import polygamma as polygamma
    from shardwise._src.special.gamma_functions import zeta as zeta
    from shardwise._src.special.hypergeometric import hyp1f1 as hyp1f1
    from shardwise._src.special.hypergeometric import hyp2f1 as hyp2f1
    from shardwise._src.special.integrals import exp1 as exp1
    from shardwise._src.special.integrals import expi as expi
    from shardwise._src.special.integrals import expn as expn
    from shardwise._src.special.integrals import sici as sici
    from shardwise._src.special.integrals import spence as spence
    from shardwise._src.special.legendre import lpmn as lpmn
    from shardwise._src.special.legendre import lpmn_values as lpmn_values
    from shardwise._src.special.scipy_special import bessel_jn as bessel_jn
    from shardwise._src.special.scipy_special import boxcox as boxcox
    from shardwise._src.special.scipy_special import boxcox1p as boxcox1p
    from shardwise._src.special.scipy_special import entr as entr
    from shardwise._src.special.scipy_special import expit as expit
    from shardwise._src.special.scipy_special import i0 as i0
    from shardwise._src.special.scipy_special import i0e as i0e
    from shardwise._src.special.scipy_special import i1 as i1
    from shardwise._src.special.scipy_special import i1e as i1e
    from shardwise._src.special.scipy_special import kl_div as kl_div
    from shardwise._src.special.scipy_special import log_softmax as log_softmax
    from shardwise._src.special.scipy_special import logit as logit
    from shardwise._src.special.scipy_special import rel_entr as rel_entr
    from shardwise._src.special.scipy_special import softmax as softmax
    from shardwise._src.special.scipy_special import sph_harm_y as sph_harm_y
    from shardwise._src.special.scipy_special import xlog1py as xlog1py
    from shardwise._src.special.scipy_special import xlogy as xlogy

lazy_names(__name__)
