"""Code books of the GGML formats that store places in a table: rows of small digits.

What a digit stands for is said where the books are used.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

#: Columns of digits, one byte each, compressed.
_PACKED: Final = {
    "iq2_xxs": (
        "c-qZUTXMuO2t&I6p&NrlNXFU6v>zoq8wUh3f*|7f1@k}FiR-jJ&Li!J1w)?0`1Cu)unf++>*2yB8=N!>*#RZynH>"
        "gQvygQ+l`x9y;mXQTS9R%3Tp@NUSO|r5dnC1(+qVF$uLVHip<ul-UJUF!3zHXOm(@LrxMi=RRHX(MzedoFd3;g|l"
        "AmE_^x5}>rS$|32+4Yf+w*KsU%hE1G#z(W_3}!nrJw{Ky;o0`%C{GBwIF#Q9qHMszZ%QIQQasm<Xnf^4vz8h+&jj"
        "(Or4TeN{qG@X}_*IBE82bOuIS+#%R={*PV%&B&wbLg;<2uMy?8)mwN!bW*k~6Fju{n4CjVy4Oc1d{tR%s$CnYe5H"
        "z@rZ^LmCIBgbHB0Q)u79ehPQWdit;;PaM!=v$HFA{f{OYjZ#o@IotuI<%tD2w~Z{k7o(<AeQ{<+E!0ocITZKQ(@3"
        "KQ#3P2L"
    ),
    "iq2_xs": (
        "c-rMv3wFaW2m{^!(5peh#BtWH?LP0#>(a!=LI^oExYcKV=XK6NQx^Yu8y~Ejutto9+n-"
        ">3EXNb?amt&E1(92=O^HV$ATZ#?G?sXQiO4MgV7dTXxfi>c*;)A1L&zYqDn1J2Oieb<eMx>KPK-"
        "b%(k&H|QwhMjsgmY}o#CvADinoLtW){hdd8++d6Urrlj{SozVjNn6~YBj7d7Ivsg$$X33UK6RVVGXLM%xJCSB8FS"
        "_lIgQ??1^ui0>z#K6KG)#8~sVQlJQRYLDA&C|Gddh!c<h;9XeM$2js)j{>1btIcGax^ck3Gwi30ATVi?M0)R=?si"
        "ykP|!}xGNX(u4ZZqkh+dK%co5(g4&q^k=qIf@KfF;Nl9E&gtcnEr3`HkwWjK{etd@sh;~T4$!t0Ttu&vuvwH9qfh"
        "XL`ZKKqPl$EvOe2JwqJ4kkn)=uG)_w2o@%eMx^-"
        "OF2%HcLRhCdWh|OM0^=g}dA!M=XnTwkh{n#Ozw%mR(F5cOc4{J*XK#UTiLNnq4A>ir`7|EF8PU+st){ZJJc>ch7_"
        "89ZGzAKQUjZWY0eHSkB*xnOr9$$WD99en?y$?7D=(oxcTP7dgS9J0qvhhi?b^xV!Hnt}WhAy@A*?>jHlpex3NC%n"
        "i92@*J{b+k<nGCOR|PlIXSeI{J%DKida4^_CwicwzX11J~n~R1e@>vv{@0uN{QG;o>CVVG>uVj{!S~=M?zP;cpuF"
        ">iE4X-plBDMeJV>|8oOBJU#$*wF?I"
    ),
    "iq2_s": (
        "c-"
        "rk&i;}`13{3L>AAJIOYyz~k>Wp`D=x8CY%_cxenEX5c6NAu2I<Xa3V3~c{7Y)Op_zw5|86qN#{+|^eOOFpj@RCmn"
        "EpzPtX|6a&-hj*tlpu%MSo4PmK?KlP^B7A?lDTOKQ3nphm0)7CA(tLPa-"
        "Nc_K&g_#t7Ig_IN)qv5a(_{3m(RAl6K`y<L#&?sQFTiiX@oTh|ka-G-GlXIB$N`NtD<7pRwFw%ax)PM$ufHytaqL"
        ")F&!+apG`v_-J!cCmn6;2N}(z*>Dr;r{~p_)M)z86PxM8R!CPzKNlbNfQAxovTt%np7lbN-"
        "9Qxw0YaES$)|)~#U4L)s4OD`$h-"
        "g#ZnhBOJm_epmU(OUR+FSz{Y7K*U|?h+iTzxKTuEhf_Rl!kb2crAb7y<BkX)oho5qV$?~<2wA*gVf^!tX1_E=z&Q"
        "qHmIojNhV;{9);oF=HKY>80}7&~H7RozZVR_>tSP{<D<8rE<ijO{OChdGUUw%y-DHQP2Hll+_(LEIlgNzYYHGx-"
        "P$uqlh-DIBquYo*Gf&*TS2Q{lD#;IoFFVtXof1D}9Q3jo<O1#N=;SbVd$2P8C_PAf>6Yz!uTV8o6f@sNRkS+`wwN"
        "G%<5HZMfgoQ!OMQX~4PCVQqaF)A%1zRe&j@>fMLn=vt^I>6h7*#0sWl__l=#H}u{lQtMZwZHK7SF)82W1TaHY*#r"
        "s8qt39Z7zO0jdz2-"
        "Yz2mn(IGaL;v$2^C;Xv85^`$Ym1>ErGdYP(N3nCOpMwMu0<WZS_H11}5x2@bBUuFV)``$s_G2b4WLLmnrGk@(75X"
        "CO3pF`Nej|<pm<m}$6R3&_4sEu(gW^(N1eIMu8LGV}h$9#?Eqln1M(lIvP~Y?770RU=-"
        ")=!YpG9>_d6$C^hRow7e|**1#_WBepLKI&TJ@gEXsKQGlHgS$o~q}m2fD|`O{R~ysqdwSM<i{|t?5ME1HD#1p6<~"
        "T+BSD+x`L9lu;s6I7q{!PgWoyi$?+9wycy-"
        "Kh+k9BkJjuifLosL0=@;3UOIM9j6TyS-!S-B4Eg-{ui57c@cpFx%|`hjf9)XrokRZ8_yJLX7Z("
    ),
    "iq3_xxs": (
        "c-ozj3vR<O3`6zT{cpS{J89CO!-"
        "}y8qRJF0Gh(6MVrri1yptzHXj6D=r*fR)9Sx<;G9=1%v3a6l>#lk6(<)>jX`1YVQeGpC&a{whNfo5habbzdEs{%u"
        ";VGxlCWUFaOLR7i2pZKH%CO{kDvio8Gsl5335%#ug<X;6jz6weT*ibs#g2;#g)$c1Q&M?Aq@L0<ce{1k)Sg~UM4f"
        "E<i@g4?+xZ-_JIRd0(CEn~RGmJ|v0hIslOd^3J8MhKpe44x0_NkCm+0DP9E$9+W|A+VCuc%6qV=>D0Kt=6%zbSZn"
        "7)p&*Q`cbH|Pbs!53m70XG;t2cPUkz0p31AJk#q74NJ|s$OFHc5+M}BYV-"
        "8^Z7xqO%B%KTk>z{cd+l_e<FTCenLIapYQ_}Pzq}"
    ),
    "iq3_s": (
        "c-p;_3zFk72t@ho{x{xkkR2!EY-"
        ")FEhLlqlf=7d7QOhN2QKIRBh2meMeQ=2{&CoQwFY$sWCdeJ{rd}boCNNA~1$kE3T!nB~J3JD@bbwHyq7+mw3GFl~"
        "mKQ>DB)DR!TwAEy8L1Kr*%X@C-"
        "bi{#X7*|ZG+9EG0)}Wj(1;@1I4R(rD>TRq=|=D?@#ZZ48FLjc$Uy`|vL8rbH9UzyltBi>8KT)WrEyTu39-"
        "bYTw*5J;IkOr^1)ght(u1jrbtldRj{}kXC&nixNr{62FlQ?Sx_EDVFwGG5j7-"
        "Aft5@Hn^QAP6On<AaRf#oY{jUJrZg-)V3}2Gt?j4R1D<p3-"
        "a&|%l{4d5VP`d&K}9EzW;~gfTF7JCc&s7K*pS}Y)%Xq$-"
        "8sPtT*PF?KtxZmF@n}ZZ?=M?h{*QV_OdWQBNX0V4A6&HJ1c5py@gDd*{wUKHhPkGjNs1L+@r^>IqR4nA|ZhHO8ee"
        ")VY}4yqaZ(?b|L{+Hd#bD7u-"
        "l@4;1$RpR)8<rPFqFOUJx$#Ri6}$}9iQ^u_Fp`IE(I`LJqRhkdH@j{b%H3H!=^1HQ%9E%cRjC-"
        "2eq3*k=4Q|>N)pY~kv5r4)$2c5VJ>RS5(*`M{Vnf{E~Pndt(;{PoF!Rqg}KHDD}?iA+"
    ),
    "iq1": (
        "c-rk)iI&?i2!#3nk8UEaL6#k7lfAlj-"
        "zJugIEDd~3RIxCKl`+s`-hC>?IFg$c#!Y)w#*xQc)QcP*myM_$bB96CTYvt-"
        "Tn4{pL$GLGa*BAh?JXd)ZKAsP13*17VH6rBV%D&VZmkC8iIFO^KrN*68??{8Oab3dMNfc9z*lSe1qXK-rp`aWX}0"
        "}bIJsz)VuznCk@}0wGJq1DQ+$OCG51V($m|WZS>?h78ZXn#NQd<El2SnaEcB5s%Os=ZM1^N4ng9AeD5*aE=an`Vh"
        "#;uDgVUxfRH7`?L&g)30<g?0&u`Co-@zS-8SILBlmFHqI6UY#(DS8+(Ru9j+cz0f-"
        "H3Jo_K7;M^|8461jZRDC_3ZZ0`1qByOVK4z#4TcA*NysERE5-"
        "UcAsJn15I?;lpr@DP;n)~s4__<~<<f8@%lB)K;H^9oN$6FE4s>sFaTl}%*_BsgScp7kz3Fv!yr^;pm#3MP2zr652"
        "R*xdA}Q^-`=QbAM$&%S1EM-PgSk&Q4AA7aA`Zu4v+yFoItJIF<DhBeDttKy(sjmSEyuAZ@F69_&<eMQGrRV;aw<p"
        "4?oHK~z>V2`yQ@>xLEqxfKj1+8e@P|H%o&p?gXog|B<c+*_Nf^tKHz&JFv4MhVCR8JOk>k`8lU8KGo1IvN>O^gE+"
        "raHfuvTt9MXt8c-@6@^#!j`uRv6p6{v^En%ok)_Ct(yj0MpJb;=eg<k%J)iBp_F-EG$1x&A^V$Y1M&oskqjiXWW|"
        "R=&IlhDDxuInKpvV064;7U+zrLcaFfC*#5AF(WsVK0lUSvgSE_MlvwS1YGDzpbaT_Q0br+cvHhP}q0VZ36zf$ShE"
        "A<*6xv8u{zZr)xPnl1{(LE~*K{F8tsAr23s;t=)ZhM3diAe}y=I7zS$D&l?^D#7si_SAL4$|-"
        "_GReguiJ}P*c`jFEo@X~vI3g98Acx&7^hMtl9?g>ZoZN0MXQ{wDlzNk6?>s}5CtZdfX$oiyC)i-"
        "CHXY7nK}puF@|j2q)y(ybT*ej#>tT%0vgb3rRCs1%E9h_{)sEWXiGG@h#!&@SG;`C_DE@?}3G^c4^I&vAf;NbOI*"
        "@qq(p36R9t+f4Hx9P$9i0fRgd$@FZPi&|4!^5PEczM#QhD1eA?nB=G^%R7M<Rdh<dKwSmWuQi5|LAZ>fGEo3w|U<"
        "9%=1}H#Noh1se4O$wPe<0v+S4u!H?hnr^+^^`7q{m0$7lE(q;Msz}Tn$8>)0`G~hQ216=0y96Zfe0rwZrj-"
        "|2UeL953FFlNpyZoYECg=4)|itzr+vs?7m*05^ff<`u8($ZFiL2k&F$o|cU4e0j2I;XoTVvgM=QzyxLH|hvVqDbV"
        "JySR>#ul|MqW3di}w2}=xDT@u_o5_Y?Cx;*5zXkMT@wNP>t8=iH0Yd<{NbqoLND++H}%fCM9_oWO9-"
        "QU?%M1y@)K#?%~!sJS*%r80-"
        "luu8M3g+t9PQ%C`1$WBq3%;+ICr6L!`Q>IVQ81YxVR*rtiySaGVDpmf0Fv^SoEol~w8fD%ppP^bE60@FgWbyhAW("
        ")jf2<lc+{%xmH9*&SSZyC@;z@1j|e>MhrGCzw4RQAJJF*v_w9U)$>0+UH-DbKLV7<zb^!lZkv`nlJ<oH_293G$Nc"
        "dvoAD2Nre0pSrz!UKlHXSNiQm)Z|>5w+NKrDCUa<A*6ClkF^})1;;q9?-"
        "5ggJ?83ShU0FJCV4DazgyLM%R{ejmdzRfz*m?-"
        "<7+wc60kC8KSnL@2;|x85<`J*!(NcOzriH6pZf})5P_R$l{Vhu_uQtoWeJ9{O9lAWukgk;ii%IY(i7U+a5IuVTz~"
        "V-"
        "7?`XEy<+j9}q&H;T31`tF<*W}UySE;3_Mjm>BEWe<;=nErr^gO#=SGt}I(jc>VjPTj&*!oW$1b2v<gmDp`UCc^bI"
        "s-"
        "9ygb%&%J^d+&MA<mLOO@i=R5p_JI^?A#{6l^&tv;S@E^+12bG^?)H}E&Ph9%Sg^yfs@#i@MFSF<4gnXqPp2zMvU("
        "UyaPiZe7!1XB_y_3doV8FZadNz&|)?e)+Kdi;PGYb9U3*R2`Ye9dn^S>ZJ?<=gILfNkd@YC@9@$vr$4f$PB{2sP`"
        "cc?$LO?}Cwf9}F>zT^*FdR<omTs`^X<Hfb>x~^+BUe|T~`J>Hs{jlpFOvpd-"
    ),
}


def columns(name: str) -> bytes:
    """The digits of a book, column after column."""
    return zlib.decompress(base64.b85decode(_PACKED[name]))
